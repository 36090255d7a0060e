"""Audits whose every finding is known beforehand."""
