"""Compile now, not when a mirror first needs it: `python -m drkit.kafka.compiled`."""

from __future__ import annotations

import sys

from drkit.kafka.compiled import load

try:
    load()
except Exception as error:  # noqa: BLE001 - whatever it is, plain Python does the same
    sys.exit(f"small batches will be coalesced in plain Python, at several times the cost: {error}")
