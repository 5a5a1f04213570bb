"""A module that Python imports when it starts, in a directory of its own."""
