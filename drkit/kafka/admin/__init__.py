"""Administration of a cluster: topics, log offsets, ACLs, producers, over kafka-python's connections."""
