"""The digest of a document: over its canonical JSON, so that equal documents have equal digests. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def document_digest(document: Any) -> str:
    """SHA-256, in hexadecimal, over JSON with sorted keys, without spaces, in ASCII."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
