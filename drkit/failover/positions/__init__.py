"""Where each group continues on the target: by time, by mapping, by transactions; and what is there."""
