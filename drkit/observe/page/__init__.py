"""The status page and its server."""
