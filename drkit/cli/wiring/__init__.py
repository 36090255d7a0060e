"""What verbs share: contexts, options, rooms handed to each other."""
