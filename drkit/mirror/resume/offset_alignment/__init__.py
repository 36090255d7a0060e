"""Offset preservation: a target partition that begins where its source begins, and tails whose offsets shifted."""
