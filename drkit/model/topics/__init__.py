"""Topics of a link: names, cycles, settings of a standby, ACLs."""
