"""The environment of a drill: a lab, the mirror's process, the clients."""
