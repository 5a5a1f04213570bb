"""Explains failed compilations: what to write instead, and where."""
