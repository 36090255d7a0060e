"""Random drills: experiments that are composed from a seed, played, and shrunk if they find something."""
