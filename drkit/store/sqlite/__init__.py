"""The embedded backend: one SQLite file."""
