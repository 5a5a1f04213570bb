"""A package in the flat layout: it lies beside the device sources."""
