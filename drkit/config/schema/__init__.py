"""The schema of `drkit.toml`."""
