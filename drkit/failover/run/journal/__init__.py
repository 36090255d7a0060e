"""A run's journal: its entries, their anchors, and the run read back from them."""
