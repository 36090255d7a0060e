"""The steps of a run, each of which journals what it is about to do and what came of it."""
