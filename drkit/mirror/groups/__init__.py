"""Consumer groups of the source, captured over time."""
