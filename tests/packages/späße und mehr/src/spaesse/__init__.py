"""A package from a directory with spaces and letters beyond ASCII."""
