"""Processes that kill, stop or interrupt themselves at a chosen point."""
