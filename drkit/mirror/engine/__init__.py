"""A batch's way from fetch to acknowledgement: fetch, split, sequence, produce."""
