"""What every part of a run has: the states it can be in, configuration and clusters, the lease, anchors, ports."""
