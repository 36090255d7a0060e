"""Each group's position on the target: by time, by mapping, by transactions; and the records there."""
