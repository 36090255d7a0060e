"""From what the clients saw to a verdict."""
