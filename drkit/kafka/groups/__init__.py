"""Consumer groups: the coordinator's requests, its log, groups that can't be moved, MirrorMaker 2's offsets."""
