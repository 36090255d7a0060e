"""Requests and results of audits."""
