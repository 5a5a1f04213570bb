"""Directories that appear at once, whose they are, and locks."""
