"""A run from plan to evidence: state machine, runner, journal, lease."""
