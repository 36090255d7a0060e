"""Clusters on this machine: the lab, the demo and drills on it."""
