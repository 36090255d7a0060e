"""A run's journal: its entries, what was anchored of them, and a run read back from them."""
