"""Several workers of one link: membership, claims, leadership."""
