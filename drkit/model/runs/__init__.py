"""What runs leave behind: journal and fences."""
