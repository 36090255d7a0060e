"""A link's state kept a second time, in a compacted topic on its target, and a lost store filled from it."""
