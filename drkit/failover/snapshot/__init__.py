"""What both clusters hold, and what the operator chose of it: what decisions are made from."""
