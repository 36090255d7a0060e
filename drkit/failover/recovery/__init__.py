"""Recovery when something breaks during a run: the recommended command, rollback, abandon, a fence by itself."""
