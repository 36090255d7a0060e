"""The data path's connections, and readers of logs built on them."""
