"""What audits are asked and what they find."""
