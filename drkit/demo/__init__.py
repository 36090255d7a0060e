"""The scenario of `drkit demo`: a disaster is survived, and every claim is checked."""
