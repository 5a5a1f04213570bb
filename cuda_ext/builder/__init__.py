"""From a project to its packages: ``project`` is read, ``session`` builds it."""
