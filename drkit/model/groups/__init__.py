"""Consumer groups: committed offsets over time, transactions, share groups."""
