"""Drills and their evidence: played, planted, tampered with."""
