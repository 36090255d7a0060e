"""The path of a batch from fetch to acknowledgement: fetch, split, sequence, produce."""
