"""Fixtures for every test; each room's fixtures are a module of tests/support."""

pytest_plugins = ["tests.support.lab"]
