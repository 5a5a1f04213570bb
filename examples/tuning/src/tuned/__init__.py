"""Kernels whose configurations were measured."""
