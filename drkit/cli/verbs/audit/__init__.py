"""Comparing both sides of a link, and keeping what one side alone holds."""
