"""Journal entries, approvals and fences of runs."""
