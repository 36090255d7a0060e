"""Scheduled drills."""
