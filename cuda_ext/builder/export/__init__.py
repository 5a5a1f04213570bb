"""Modules as a directory of C++ that builds without this package."""
