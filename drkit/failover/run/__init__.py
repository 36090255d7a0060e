"""A run from plan to evidence: the service behind the commands, and the runner of stages."""
