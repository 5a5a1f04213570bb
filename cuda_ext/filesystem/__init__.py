"""Atomic directories, owners of files, regular files, and locks."""
