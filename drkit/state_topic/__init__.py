"""A copy of a link's state in a compacted topic on its target, and the recovery of a lost store from it."""
