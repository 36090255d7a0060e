"""Findings in their forms: files, tables, what could not be read."""
