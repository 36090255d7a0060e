"""What people see of audits: tables at the terminal, reports as HTML."""
