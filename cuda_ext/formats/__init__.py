"""Convert bytes to facts and back. Nothing here knows a tool or a project."""
