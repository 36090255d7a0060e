"""Findings as they are handed over: files, tables, one group's view."""
