"""What keeps a partition from moving, or its target from being whole: noticed, told, cleared."""
