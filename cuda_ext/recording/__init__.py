"""Records of launches: what a program launched, and whether a project builds it."""
