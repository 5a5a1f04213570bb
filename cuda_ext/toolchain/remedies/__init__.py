"""Explain failed compilations: the mistake, its place, and the remedy."""
