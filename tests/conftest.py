"""Fixtures that more than one test file uses."""

pytest_plugins = [
    "tests.packages_fixtures",
]
