"""What only one side holds: kept, checked, put back."""
