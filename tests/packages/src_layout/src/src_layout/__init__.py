"""A package under src."""
