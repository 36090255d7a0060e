"""What is known of consumer groups: committed offsets over time, transactions, share groups."""
