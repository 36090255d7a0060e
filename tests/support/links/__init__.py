"""A test's own link: its records, its runtime, its independent readers."""
