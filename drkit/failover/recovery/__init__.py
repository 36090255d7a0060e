"""When something breaks during a run: which command leads on, rollback, abandon."""
