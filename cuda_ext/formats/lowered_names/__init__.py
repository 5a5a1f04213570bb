"""Lowered names, as the Itanium ABI mangles them, back to names and types of C++."""
