"""When something breaks during a run: the command that recovers, rollback, abandon."""
