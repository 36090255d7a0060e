"""Judges a drill: from the histories of its clients to a verdict."""
