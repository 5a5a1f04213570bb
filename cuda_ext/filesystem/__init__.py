"""Directories that appear at once, their owners, digests of files, and locks."""
