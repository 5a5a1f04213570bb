"""Compilation at run time, on demand and ahead of demand, with the user's cache."""
