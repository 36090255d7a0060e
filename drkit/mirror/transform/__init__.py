"""Links that alter records: batches rebuilt on a thread beside the engine."""
