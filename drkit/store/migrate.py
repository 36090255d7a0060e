"""Migrates a store to this drkit's schema version, for `drkit store migrate`; it requires a backup of the store.

The older drkit makes the backup (`drkit store backup`): only that version reads its schema, and its restore is the way
back.
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
    """Check the backup of a store that is about to be migrated: complete, of this store, and up to date.

    Raises:
        Refused: there is none, it is of another store or another version, or the store was changed since.
        DrkitError: it is damaged.
    """
    if file is None:
        raise Refused(
            f"{schema.where} is to be migrated, but no backup is named",
            meaning="Without a backup there is no way back. Nothing was changed",
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
        f"{file} is not a backup of the current content of {schema.where}: {why}",
        meaning="It is an old backup, or one of another store, and can't undo the migration. Nothing was changed",
        remedy=f"{_TAKE} --backup with that file",
    )
