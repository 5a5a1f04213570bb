"""From a project to its packages: ``project`` reads it, ``session`` builds it."""
