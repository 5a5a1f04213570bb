"""Launching a loaded kernel: configuration, arguments, the launcher with all checks, and the fast path."""
