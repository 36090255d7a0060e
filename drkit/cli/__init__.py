"""The command line: one file per verb, the only composition root."""
