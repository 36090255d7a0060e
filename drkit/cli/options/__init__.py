"""Options that several verbs share, and what their values mean."""
