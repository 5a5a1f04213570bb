"""Compilation at run time, on demand and in advance, with the user's cache."""
