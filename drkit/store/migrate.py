"""Migrates a store to this drkit's schema version, for `drkit store migrate`: only with a backup of what it holds.

The backup is the older drkit's (`drkit store backup`): it alone reads its schema, and what leads back is its restore.
"""

from __future__ import annotations

from pathlib import Path

from drkit.model.clock import iso
from drkit.model.errors import Refused
from drkit.store.api import StoreSchema
from drkit.store.backup import Backup, read_backup

_TAKE = (
    "Stop every mirror. With the drkit that wrote the store: drkit store backup --out FILE. Then: drkit store migrate"
)


def checked_backup(schema: StoreSchema, file: Path | None) -> Backup:
    """The backup of a store that is about to be migrated: whole, of this store, and as it is now.

    Raises:
        Refused: there is none, it is another store's or another version's, or the store was changed since.
        DrkitError: it is damaged.
    """
    if file is None:
        raise Refused(
            f"{schema.where} is to be migrated, and no backup is named",
            meaning="Only a backup leads back. Nothing was changed",
            remedy=f"{_TAKE} --backup FILE",
        )
    kept = schema.version()
    found = read_backup(file, kept if kept > 0 else -kept - 1)
    changed_at, counts = schema.changed_at(), schema.counts()
    if changed_at is not None and changed_at > found.created_at:
        raise _not_of_it(
            schema, file, f"the store was changed at {iso(changed_at)}, after it was taken ({iso(found.created_at)})"
        )
    for kind, count in counts.items():
        if found.rows[kind] != count:
            raise _not_of_it(schema, file, f"the store has {count} rows of {kind}, the backup {found.rows[kind]}")
    return found


def _not_of_it(schema: StoreSchema, file: Path, why: str) -> Refused:
    return Refused(
        f"{file} is not what {schema.where} holds: {why}",
        meaning="It is another store's backup, or an old one: it would not lead back. Nothing was changed",
        remedy=f"{_TAKE} --backup with that file",
    )
