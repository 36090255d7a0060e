"""What people see on a terminal or in a report."""
