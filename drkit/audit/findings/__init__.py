"""Findings in their forms: files, tables, one group's view."""
