"""A store's schema is brought up by one command, while nobody uses it; releases refuse each other's stores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from drkit.model.clock import now
from drkit.model.errors import DrkitError, OtherSchema, Refused, StoreMissing
from drkit.store import open_whole_store, version
from drkit.store.api import StoreSchema
from drkit.store.backup import checked_backup, read_backup, write_backup
from drkit.store.open import open_schema
from drkit.store.version import LOOK_SECONDS, Migration, check_version, migrations_from
from drkit.store.workers import WorkerNote, forget_workers, put_worker
from tests.support.commands.other_release import SECOND, newer
from tests.support.links.filled_store import FILLED, contents_of, fill_store
from tests.support.wait import wait_until

BROKEN = Migration(2, "one that fails", ("UPDATE no_such_table SET x = 1",), ("ALTER TABLE {keyspace}.none ADD x int",))


@pytest.fixture(params=["sqlite", pytest.param("cassandra", marks=pytest.mark.cassandra)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of the test's own, filled."""
    found = f"sqlite:///{tmp_path}/drkit.db"
    if request.param == "cassandra":
        found = request.getfixturevalue("cassandra_url")
    with closing(open_whole_store(found)) as store:
        fill_store(store)
    return found


@contextmanager
def schema_of(url: str) -> Iterator[StoreSchema]:
    with closing(open_schema(url)) as schema:
        yield schema


def backup_of(url: str, file: Path) -> Path:
    with closing(open_whole_store(url)) as store:
        write_backup(store, file, backend=url.partition(":")[0])
    return file


def refused(url: str, *words: str) -> OtherSchema:
    for create in (True, False):
        with pytest.raises(OtherSchema) as told:
            open_whole_store(url, create=create)
        for word in words:
            assert word in f"{told.value.what} {told.value.meaning} {told.value.remedy}"
    return told.value


def test_a_migration_leads_from_each_version_to_the_next():
    assert [each.version for each in version.MIGRATIONS] == list(range(2, version.SCHEMA_VERSION + 1))
    assert migrations_from(version.SCHEMA_VERSION, "it") == ()
    with newer():
        assert migrations_from(1, "it") == migrations_from(-2, "it") == (SECOND,)
        assert migrations_from(2, "it") == ()
        with pytest.raises(OtherSchema, match="version 1, this drkit works with version 2"):
            check_version(1, "it")
    for none in (-1, 0):
        with pytest.raises(OtherSchema, match="no migration leads from it"):
            migrations_from(none, "it")
    for later in (2, -2):
        with pytest.raises(OtherSchema, match="version 2, this drkit works with version 1"):
            migrations_from(later, "it")


def test_releases_refuse_each_others_stores_and_one_command_leads_on(url, tmp_path):
    with closing(open_whole_store(url)) as store:
        before = contents_of(store)
    copy = backup_of(url, tmp_path / "copy.gz")
    with newer():
        refused(url, "An older drkit wrote it", "drkit store backup --out FILE", "drkit store migrate --backup FILE")
        with schema_of(url) as schema:
            assert (schema.version(), schema.users()) == (1, [])
            assert checked_backup(schema, copy).rows["mapping"] == 5000
            schema.apply(migrations_from(1, schema.where))
            assert schema.version() == 2
        with closing(open_whole_store(url, create=False)) as store:
            assert contents_of(store) == before
    told = refused(url, "schema version 2, this drkit works with version 1", "A newer drkit wrote it")
    assert "drkit store restore --from" in told.remedy


def test_a_program_that_has_the_store_open_is_refused_once_it_was_migrated(url):
    """A frozen process that wakes up, or `drkit serve` of the release before."""
    with closing(open_whole_store(url)) as old:
        assert old.runs()
        before = contents_of(old)
        with newer(), schema_of(url) as schema:
            schema.apply(migrations_from(1, schema.where))
        with pytest.raises(OtherSchema, match="schema version 2, this drkit works with version 1"):
            wait_until(lambda: old.put_notes(FILLED, "late", {"a": "b"}), 20 * LOOK_SECONDS, "the refusal")
        with pytest.raises(OtherSchema, match="schema version 2"):
            wait_until(lambda: old.link_control(FILLED) is None, 20 * LOOK_SECONDS, "the refusal")
    with newer(), closing(open_whole_store(url)) as store:
        after = contents_of(store)
        if url.startswith("sqlite"):  # its transactions look themselves: not one write gets through
            assert after == before


def test_a_store_that_is_used_is_not_migrated(url):
    at = now()
    with closing(open_whole_store(url)) as store, newer(), schema_of(url) as schema:
        with pytest.MonkeyPatch.context() as older:
            older.setattr(version, "SCHEMA_VERSION", 1)
            store.acquire_lease("producer:primary->dr:id", "4711", 1e9, store.time())  # a value, not a holder
            store.acquire_lease("run:primary->dr", "somebody", 30, store.time())
        with pytest.raises(Refused, match="in use: run:primary->dr by somebody") as told:
            schema.apply((SECOND,))
        assert "Stop every mirror" in told.value.remedy
        assert schema.version() == 1
        with pytest.MonkeyPatch.context() as older:
            older.setattr(version, "SCHEMA_VERSION", 1)
            store.release_lease("run:primary->dr", "somebody")
            put_worker(store, FILLED, WorkerNote("host:1:2:x", False, False, 3, at, at + timedelta(seconds=300)))
        with pytest.raises(Refused, match="worker of primary->dr host:1:2:x"):
            schema.apply((SECOND,))
        with pytest.MonkeyPatch.context() as older:
            older.setattr(version, "SCHEMA_VERSION", 1)
            forget_workers(store, FILLED, ["host:1:2:x"])
            put_worker(store, FILLED, WorkerNote("host:3:4:y", False, False, 3, at, at - timedelta(seconds=1)))
        assert schema.users() == []
        schema.apply((SECOND,))
        assert schema.version() == 2


def test_a_migration_that_fails_is_run_again(url, tmp_path):
    copy = backup_of(url, tmp_path / "copy.gz")
    with newer(BROKEN), schema_of(url) as schema, pytest.raises(DrkitError, match=r"no_such_table|none"):
        schema.apply(migrations_from(1, schema.where))
    if url.startswith("sqlite"):
        open_whole_store(url).close()  # it never happened
    else:
        refused(url, "is being migrated to schema version 2", "run it again, with the same --backup FILE")
        with newer():
            refused(url, "is being migrated to schema version 2")
    with newer(), schema_of(url) as schema:
        assert checked_backup(schema, copy).sha256 == read_backup(copy, 1).sha256
        schema.apply(migrations_from(schema.version(), schema.where))
        assert schema.version() == 2
        open_whole_store(url).close()


def test_only_a_backup_of_this_store_as_it_is_leads_back(url, tmp_path):
    copy = backup_of(url, tmp_path / "copy.gz")
    with closing(open_whole_store(f"sqlite:///{tmp_path}/other.db")) as store:
        store.put_notes(FILLED, "k", {"a": "b"})
    other = backup_of(f"sqlite:///{tmp_path}/other.db", tmp_path / "other.gz")
    (tmp_path / "damaged.gz").write_bytes(copy.read_bytes()[:-20])
    with newer(), schema_of(url) as schema:
        for file, why in ((None, "no backup is named"), (other, "the store has 1 rows of link_control")):
            with pytest.raises(Refused, match=why) as told:
                checked_backup(schema, file)
            assert "drkit store backup --out FILE" in told.value.remedy
        with pytest.raises(DrkitError, match="is not a complete backup"):
            checked_backup(schema, tmp_path / "damaged.gz")
        checked_backup(schema, copy)
    with closing(open_whole_store(url)) as store:
        store.put_run(replace(store.runs()[0], updated_at=now()))
    with newer(), schema_of(url) as schema, pytest.raises(Refused, match=r"the store was changed at .*, after it was"):
        checked_backup(schema, copy)


def test_what_is_no_store_is_not_migrated(tmp_path):
    with pytest.raises(StoreMissing):
        open_schema(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreMissing, match="has no tables"):
        open_schema(f"sqlite:///{tmp_path}/empty.db")
    (tmp_path / "text.db").write_text(json.dumps({"a": 1}) * 100)
    with pytest.raises(DrkitError):
        open_schema(f"sqlite:///{tmp_path}/text.db")
