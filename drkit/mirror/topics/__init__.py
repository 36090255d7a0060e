"""Topics, settings and ACLs of the target follow the source's."""
