"""A run's journal: its entries, and the run, or a site's, read back from them."""
