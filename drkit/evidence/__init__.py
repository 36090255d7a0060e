"""Evidence of runs and drills: what is in a bundle, how it is signed, and how it is verified (docs/evidence.md)."""
