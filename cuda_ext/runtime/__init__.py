"""From a manifest and its images to launches. Nothing is loaded before it is used."""
