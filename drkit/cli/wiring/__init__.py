"""What verbs share: contexts, options, implementations that packages need of each other."""
