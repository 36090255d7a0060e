"""Closing a cluster to clients, proving that it is closed, opening it again."""
