"""What a drill leaves behind."""
