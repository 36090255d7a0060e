"""What of the suite runs, in which order and on which worker."""
