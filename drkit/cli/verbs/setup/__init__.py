"""Before there is a mirror: the configuration, the store, the jars."""
