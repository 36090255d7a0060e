"""Evidence of runs and drills: the content, the signing and the verification of bundles (docs/evidence.md)."""
