"""Offset preservation: makes a target partition begin where its source begins, and recognises shifted tails."""
