"""Runs left in a state, with a broken part, and the commands that lead on."""
