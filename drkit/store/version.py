"""The version of the store's schema: one for both backends.

Every command refuses a store of another version and leaves it unchanged. Only `drkit store migrate` changes the
version, while nobody uses the store. Programs that have it open check again: SQLite in each transaction, Cassandra
every `LOOK_SECONDS`. So different releases of drkit work side by side only if they have the same version.
"""

from __future__ import annotations

from dataclasses import dataclass

from drkit.model.errors import OtherSchema

SCHEMA_VERSION = 1
"""The version that this drkit reads and writes."""

LOOK_SECONDS = 1.0
"""How often a program that has a store open checks whether it was migrated."""


@dataclass(frozen=True, slots=True)
class Migration:
    """Migrates a store from the version below to `version`.

    Its tables `lease`, `link_note`, `watermark`, `link_control`, `topic_state` and `run` keep the columns that
    `drkit.store.backup` reads.

    Args:
        version: the version after it.
        what: what it does, for people.
        sqlite: its statements in order; all migrations are one transaction.
        cassandra: its statements in order, with `{keyspace}`; each may be run again.
    """

    version: int
    what: str
    sqlite: tuple[str, ...]
    cassandra: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = ()
"""One migration for each version after the first."""


def check_version(kept: int, where: str) -> bool:
    """Whether a store has its tables.

    Args:
        kept: its version; 0: it has no tables; -N: a migration to version N was begun and not finished.
        where: the store, for people.

    Raises:
        OtherSchema: it has another version.
    """
    if kept in {0, SCHEMA_VERSION}:
        return kept == SCHEMA_VERSION
    versions = f"{where} has schema version {kept}, this drkit works with version {SCHEMA_VERSION}"
    if kept > SCHEMA_VERSION:
        raise OtherSchema(
            versions,
            meaning="A newer drkit wrote it: this one could misread it. Nothing was changed",
            remedy="Use that newer drkit (drkit --version). To go back to this one: drkit store restore --from the "
            "backup that was taken before the migration, with a new store in store.url",
        )
    if kept > 0:
        raise OtherSchema(
            versions,
            meaning="An older drkit wrote it. Nothing was changed",
            remedy="Stop every mirror. With that older drkit: drkit store backup --out FILE. Then with this one: drkit "
            "store migrate --backup FILE (with --dry-run it only says what it would do)",
        )
    if kept < -1:
        raise OtherSchema(
            f"{where} is being migrated to schema version {-kept}, or its migration was interrupted",
            meaning="Nobody may use the store until the migration is finished. Nothing was changed",
            remedy="If no `drkit store migrate` is running: run it again, with the same --backup FILE",
        )
    raise _by_no_drkit(versions)


def migrations_from(kept: int, where: str) -> tuple[Migration, ...]:
    """The migrations from `kept` to this version, in order. Arguments as for `check_version`.

    Raises:
        OtherSchema: the store is newer, or no drkit wrote it.
    """
    newest, reached = max(kept, -kept), kept if kept > 0 else -kept - 1
    if newest > SCHEMA_VERSION:
        check_version(newest, where)
    steps = tuple(each for each in MIGRATIONS if reached < each.version <= SCHEMA_VERSION)
    if reached < 1 or [each.version for each in steps] != list(range(reached + 1, SCHEMA_VERSION + 1)):
        raise _by_no_drkit(f"{where} has schema version {kept}, and no migration leads from it to {SCHEMA_VERSION}")
    return steps


def _by_no_drkit(what: str) -> OtherSchema:
    return OtherSchema(
        what,
        meaning="No published drkit wrote it. Nothing was changed",
        remedy="Name another store.url; drkit store recover --from the cluster mirrored to fills a new store",
    )
