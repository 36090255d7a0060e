"""The stages of a run; each journals its intent and its outcome."""
