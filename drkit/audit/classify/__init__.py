"""What became of each record that did not agree."""
