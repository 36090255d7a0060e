"""Failback and reprotect of several links in one run: salvaged all, then brought back, then moved."""
