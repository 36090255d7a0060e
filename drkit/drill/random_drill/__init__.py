"""Random drills: experiments that are composed from a seed, played, and cut down where they find something."""
