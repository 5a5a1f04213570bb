"""Atomic directories, their owners, digests of files, and locks."""
