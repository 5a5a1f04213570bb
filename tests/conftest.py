"""Fixtures that more than one test file uses."""

pytest_plugins = [
    "tests.loader_fixtures",
    "tests.packages_fixtures",
]
