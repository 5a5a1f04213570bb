"""Operators of PyTorch in Triton, in the manner of large libraries."""

VERSION = "2.1"
