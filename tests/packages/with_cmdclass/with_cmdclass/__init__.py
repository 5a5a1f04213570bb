"""A package whose project replaces the build command."""
