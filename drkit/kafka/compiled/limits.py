"""Limits of coalescing: which batches are joined, and how large the result may be. For plain Python and compiled."""

from __future__ import annotations

MOST = 4_000
"""Records that are joined into one batch."""
FEW = 16
"""Records in a batch that is joined with others."""
LEAST, SMALL = 56, 8 * 1024
"""Sizes of such a batch, as its length says: a record's length then takes at most two bytes."""
GROWTH = 24
"""Bytes by which a record can grow when it is stamped and numbered again, at most."""
BACKLOG = 100
"""Small batches of one partition in one answer from which on a partition has a backlog of them."""
ENOUGH = 20_000
"""Small batches in backlogs from which on machine code is loaded. Loading costs as much CPU as joining some 200,000 in
plain Python; a backlog that begins like this is a long one, and its first records are on the target by then."""
FARTHEST = 1 << 61
"""Timestamps beyond it, or farther apart, could overflow where they are subtracted: left to plain Python."""
