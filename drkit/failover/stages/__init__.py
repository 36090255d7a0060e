"""The steps of a run, each of which journals what it is about to do and the outcome."""
