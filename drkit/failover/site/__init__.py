"""One run for a site: several links' runs under one plan, one digest, one journal and one lease."""
