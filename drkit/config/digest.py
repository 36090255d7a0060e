"""A digest of the configuration that shows no secret."""

from __future__ import annotations

import json
from hashlib import sha256

from drkit.config.schema import Config


def configuration_digest(config: Config) -> str:
    """SHA-256 (hexadecimal) of everything that is configured, secrets masked: they may change without changing it."""
    shown = config.model_dump(mode="json")
    return sha256(json.dumps(shown, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
