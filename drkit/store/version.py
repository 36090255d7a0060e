"""The version of the store's schema: one for both backends. A store of another version is refused, never guessed at."""

from __future__ import annotations

from drkit.model.errors import Refused

SCHEMA_VERSION = 1
"""What this drkit reads and writes. `drkit store migrate` would bring an older store to it."""


def check_version(kept: int, where: str) -> bool:
    """Whether a store has its tables (`kept` is 0 where it has none).

    Raises:
        Refused: it has another version.
    """
    if kept in {0, SCHEMA_VERSION}:
        return kept == SCHEMA_VERSION
    newer = kept > SCHEMA_VERSION
    raise Refused(
        f"{where} has schema version {kept}, this drkit works with version {SCHEMA_VERSION}",
        meaning="A newer drkit wrote it: this one could misread it. Nothing was changed"
        if newer
        else "No drkit that was published wrote it, and there is nothing that brings it up. Nothing was changed",
        remedy="Use that newer drkit (drkit --version), or another store.url"
        if newer
        else "Name another store.url; drkit store recover --from the cluster mirrored to fills a new store",
    )
