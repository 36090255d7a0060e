"""The SQLite backend's own matters: opening, versions, and what goes wrong with files."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drkit.model.errors import ConfigError, DrkitError, Refused, StoreMissing, Unreachable
from drkit.model.offsets import OffsetMapping
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.sqlite.schema import TABLES, create_tables, kept_version

LINK = LinkId("primary", "dr")
TP = TopicPartition("flights", 0)
AT = datetime(2026, 11, 20, tzinfo=UTC)


def fill(store, count: int = 3) -> None:
    store.append_mappings(LINK, [OffsetMapping(*TP, 0, number, number) for number in range(count)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "drkit.db"


@pytest.fixture
def used(file: Path) -> str:
    """The URL of a store that holds 3000 rows."""
    url = f"sqlite:///{file}"
    with closing(open_store(url)) as store:
        fill(store, 3000)
    return url


# ---- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("drkit.db", "not a URL"),
        ("postgres://h/db", "unknown kind of store, 'postgres'"),
        ("sqlite://drkit.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///no/such/directory/drkit.db", "there is no directory no/such/directory"),
        ("sqlite:///drkit.db?mode=ro", "unknown parameter 'mode'"),
        ("sqlite:///drkit.db?timeout=-1", "timeout='-1'"),
        ("sqlite:///drkit.db?timeout=x", "timeout='x'"),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_a_wrong_url_is_a_configuration_error(url, word, create):
    with pytest.raises(ConfigError, match=word):
        open_store(url, create=create)


def test_a_relative_path_and_odd_characters(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("drkit.db", "ein Speicher #1 100% ✈.db"):
        with closing(open_store(f"sqlite:///{name}?timeout=3")) as store:
            fill(store)
        assert (tmp_path / name).is_file()


# ---- not created --------------------------------------------------------------------------------------


def test_a_store_that_is_not_there_is_an_error_and_nothing_is_created(file):
    with pytest.raises(StoreMissing, match=f"there is no store {file}") as told:
        open_store(f"sqlite:///{file}", create=False)
    assert "drkit store recover --from" in told.value.remedy
    assert list(file.parent.iterdir()) == []


def test_a_store_without_tables_is_an_error_and_stays_as_it_is(file):
    file.touch()
    with pytest.raises(StoreMissing, match="has no tables"):
        open_store(f"sqlite:///{file}", create=False)
    assert file.stat().st_size == 0


def test_a_store_that_is_removed_or_replaced_while_it_is_open_takes_nothing_any_more(used, file):
    with closing(open_store(used)) as store:
        file.rename(file.with_suffix(".away"))
        for replaced in (False, True):
            if replaced:
                open_store(used).close()
            with pytest.raises(StoreMissing, match="was removed, or replaced"):
                fill(store)
            with pytest.raises(StoreMissing, match="was removed, or replaced"):
                store.watermarks(LINK)


def test_a_store_that_lost_a_table_is_damaged_and_says_what_leads_on(used, file):
    with closing(sqlite3.connect(file)) as other:
        other.execute("DROP TABLE mapping")
    with closing(open_store(used)) as store, pytest.raises(DrkitError, match="is damaged") as told:
        store.mappings(LINK, TP, 0)
    assert "drkit store recover --from" in told.value.remedy


def test_an_existing_store_may_be_written_without_create(used):
    with closing(open_store(used, create=False)) as store:
        fill(store, 4000)
        assert len(store.mappings(LINK, TP, 0)) == 4000


# ---- versions -----------------------------------------------------------------------------------------


def test_the_settings_that_durability_rests_on(used, file):
    with closing(open_store(used)) as store, closing(sqlite3.connect(file)) as other:
        assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._db.row("PRAGMA synchronous") == (2,), "FULL"
        strict = [row[0] for row in other.execute("SELECT name FROM pragma_table_list WHERE strict = 0")]
        assert [name for name in strict if not name.startswith("sqlite_")] == []


@pytest.mark.parametrize(("version", "says"), [(99, "newer drkit"), (2, "newer drkit"), (-1, "No published drkit")])
def test_another_schema_is_refused_and_left_as_it_is(used, file, version, says):
    with closing(sqlite3.connect(file)) as other:
        other.execute("UPDATE schema_version SET version = ?", (version,))
        other.commit()
    for create in (True, False):
        with pytest.raises(Refused, match=f"schema version {version}, this drkit works with version 1") as raised:
            open_store(used, create=create)
        assert says in raised.value.meaning
        assert raised.value.remedy
    with closing(sqlite3.connect(file)) as other:
        assert kept_version(other, str(file)) == version


def test_a_creation_that_fails_changes_nothing(tmp_path, monkeypatch):
    file = tmp_path / "new.db"
    monkeypatch.setattr("drkit.store.sqlite.schema.TABLES", (*TABLES, "UPDATE no_such_table SET x = 1"))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        with pytest.raises(sqlite3.OperationalError, match="no_such_table"):
            create_tables(connection, str(file))
        assert kept_version(connection, str(file)) == 0


# ---- files that aren't as they should be ----------------------------------------------------------------


def refused(url: str, *words: str) -> None:
    for create in (True, False):
        with pytest.raises(DrkitError) as raised, closing(open_store(url, create=create)) as store:
            store.mappings(LINK, TP, 0)
        for word in words:
            assert word in str(raised.value)
        assert raised.value.remedy


def test_another_programs_database_is_left_alone(file):
    with closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE schema_version (version)")
        other.commit()
    before = file.read_bytes()
    refused(f"sqlite:///{file}", "not a drkit store")
    assert file.read_bytes() == before


def test_a_file_that_is_no_database(file):
    file.write_text("dear diary " * 500)
    refused(f"sqlite:///{file}", str(file), "was never a SQLite database")


def test_a_damaged_database(used, file):
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(os.urandom(file.stat().st_size - 4096))
    refused(used, str(file), "damaged", "backup")


def test_a_directory_instead_of_a_file(tmp_path):
    refused(f"sqlite:///{tmp_path}", "can't open a file at this path")


def test_a_full_disk_loses_nothing_that_was_kept_and_goes_on_when_there_is_room(used):
    with closing(open_store(used)) as store:
        (pages,) = store._db.row("PRAGMA page_count")
        store._db.row(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(DrkitError, match="disk is full") as raised:
            fill(store, 100_000)
        assert "Free space" in raised.value.remedy
        assert len(store.mappings(LINK, TP, 0)) == 3000
        store._db.row("PRAGMA max_page_count = 1000000")
        fill(store, 100_000)
        assert len(store.mappings(LINK, TP, 0)) == 100_000


def test_a_read_only_file(used):
    with closing(open_store(used)) as store:
        store._db.row("PRAGMA query_only = ON")  # permissions don't stop root, who may run the tests
        with pytest.raises(DrkitError, match="read-only"):
            fill(store)
        assert len(store.mappings(LINK, TP, 0)) == 3000


def test_another_process_that_holds_the_lock_makes_it_unreachable_not_broken(used, file):
    with closing(open_store(f"{used}?timeout=0.1")) as store, closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unreachable, match=r"held it for more than 0\.1 s"):
            fill(store, 4000)
        assert len(store.mappings(LINK, TP, 0)) == 3000, "readers continue"
        other.rollback()
        fill(store, 4000)
        assert len(store.mappings(LINK, TP, 0)) == 4000


def test_a_call_that_fails_halfway_keeps_nothing_of_it(used):
    with closing(open_store(used)) as store:
        rows = [OffsetMapping(*TP, 0, 5000, 5000), OffsetMapping(*TP, 0, 5001, "not an offset")]  # type: ignore[arg-type]  # on purpose
        with pytest.raises(sqlite3.IntegrityError):
            store.append_mappings(LINK, rows)
        assert len(store.mappings(LINK, TP, 0)) == 3000
        fill(store, 3001)
