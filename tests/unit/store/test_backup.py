"""A store's copy in a file: whole or refused, and a restored store promises no more than the copy can."""

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.model.errors import DrkitError, Refused
from drkit.model.link_state import STORE_RECOVERED
from drkit.model.topology import LinkId
from drkit.state_topic.guard import BEGUN, RECOVERY, RESTORING, STATE
from drkit.store import open_whole_store
from drkit.store.backup import read_backup, write_backup
from drkit.store.workers import WorkerNote, forget_workers, put_worker
from tests.support.commands.other_release import newer
from tests.support.links.filled_store import FILLED, TP, contents_of, fill_store

SCHEMAS = Path(__file__).parents[3] / "docs" / "schemas"
CONFIG = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
[store]
url = "sqlite:///drkit.db"
[[links]]
source = "primary"
target = "dr"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "drkit.toml").write_text(CONFIG)
    with closing(open_whole_store(f"sqlite:///{tmp_path}/drkit.db")) as store:
        fill_store(store)
    return tmp_path


def run(folder: Path, verb: str, *arguments: str, schema: str = "", code: int = 0) -> dict:
    command = ["store", verb, "--config", str(folder / "drkit.toml"), "--output", "json", *arguments]
    done = CliRunner().invoke(application(("store",)), command)
    assert done.exit_code == code, done.output
    document = json.loads(done.stdout)
    name = schema or ("error" if "error" in document else f"store-{verb}")
    jsonschema.validate(document, json.loads((SCHEMAS / f"{name}.schema.json").read_text()))
    return document


def test_what_was_backed_up_is_restored(folder):
    file = folder / "copy.gz"
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        before = contents_of(store)
    made = run(folder, "backup", "--out", str(file))
    assert (made["rows"]["mapping"], made["rows"]["journal"], made["links"]) == (5000, 3, ["primary->dr"])
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [each for each in folder.iterdir() if each.name.endswith(".partial")]

    (folder / "drkit.db").unlink()
    found = run(folder, "restore", "--from", str(file))
    assert found["restored"][0]["direction"] == "paused"
    assert "drkit link resume 'primary->dr'" in found["next"]
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db", create=False)) as store:
        after = contents_of(store)
        control = after["primary->dr"].pop("control")
        kept = before["primary->dr"].pop("control")
        assert after == before
        assert (control.version, control.paused_topics) == (kept.version + 1, kept.paused_topics)
        assert "restored from a backup of" in control.reason
        (doubt,) = [each for each in store.problems(FILLED) if each.kind == STORE_RECOVERED]
        assert (doubt.topic, doubt.partition, doubt.unsure_from) == (*TP, 4998)
        assert store.next_generation(FILLED) > before_generation(file)


def before_generation(file: Path) -> int:
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    return next(line["rows"][0][0] for line in lines if line.get("kind") == "generation")


def test_a_store_that_holds_something_is_only_replaced_when_told_so(folder):
    file = folder / "copy.gz"
    run(folder, "backup", "--out", str(file))
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        store.put_notes(FILLED, "later", {"a": "b"})
    refused = run(folder, "restore", "--from", str(file), code=3)
    assert "--replace" in refused["error"]["remedy"]
    dry = run(folder, "restore", "--from", str(file), "--replace", "--dry-run")
    assert (dry["replaced"], dry["restored"]) == (False, [])
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        assert store.notes(FILLED, "later") == {"a": "b"}
    found = run(folder, "restore", "--from", str(file), "--replace")
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        assert store.notes(FILLED, "later") == {}
    with closing(open_whole_store(f"sqlite:///{found['kept_aside']}", create=False)) as store:
        assert store.notes(FILLED, "later") == {"a": "b"}


@pytest.mark.parametrize("begun", [BEGUN, RESTORING])
def test_a_store_that_is_filled_in_part_is_not_copied_as_a_whole_one(folder, begun):
    """A backup has no place for the mark: restored elsewhere, the part counted as all that there was."""
    file = folder / "copy.gz"
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        store.put_notes(FILLED, RECOVERY, {STATE: begun})
        write_backup(store, folder / "older.gz", backend="sqlite")
    refused = run(folder, "backup", "--out", str(file), code=3)["error"]
    assert "has only a part" in refused["what"]
    assert ("drkit store restore" if begun == RESTORING else "drkit store recover") in refused["remedy"]
    assert not file.exists()

    (folder / "drkit.db").unlink()
    for options in ([], ["--dry-run"]):
        refused = run(folder, "restore", "--from", str(folder / "older.gz"), *options, code=3)["error"]
        assert "only a part of the state of primary->dr" in refused["what"]
        assert "drkit store recover --from dr --link 'primary->dr'" in refused["remedy"]
        assert not (folder / "drkit.db").exists()


@pytest.mark.parametrize("user", ["a mirror's worker", "a run"])
def test_a_store_that_somebody_uses_is_not_replaced(folder, user):
    """A mirror would write what it knows of the store before on the restored one, and over the copy on the target."""
    file = folder / "copy.gz"
    run(folder, "backup", "--out", str(file))
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        at = store.time()
        if user == "a run":
            store.acquire_lease("failover:primary->dr", "m1:4711", 15, at)
        else:
            put_worker(store, FILLED, WorkerNote("m1:4711:0:a:b", True, True, 1, at, at + timedelta(minutes=5)))
        store.put_notes(FILLED, "later", {"a": "b"})
        for more in ([], ["--dry-run"]):
            refused = run(folder, "restore", "--from", str(file), "--replace", *more, code=3)["error"]
            assert "m1:4711" in refused["what"]
            assert "Stop every mirror" in refused["remedy"]
        assert store.notes(FILLED, "later") == {"a": "b"}
        if user == "a run":
            store.release_lease("failover:primary->dr", "m1:4711")
        else:
            forget_workers(store, FILLED, ["m1:4711:0:a:b"])
    run(folder, "restore", "--from", str(file), "--replace")


def test_a_restore_that_was_interrupted_is_done_again(folder, monkeypatch):
    file = folder / "copy.gz"
    run(folder, "backup", "--out", str(file))
    (folder / "drkit.db").unlink()

    def cut(*_: object) -> None:
        raise DrkitError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr("drkit.state_topic.restore._put_digests", cut)
        run(folder, "restore", "--from", str(file), code=1)
    assert not (folder / "drkit.db").exists(), "what isn't whole doesn't stand there"
    run(folder, "restore", "--from", str(file))


def test_a_damaged_store_is_restored_once_it_was_moved_away(folder):
    file, damaged = folder / "copy.gz", folder / "drkit.db"
    run(folder, "backup", "--out", str(file))
    damaged.write_bytes(b"no database at all" * 100)
    told = run(folder, "restore", "--from", str(file), "--replace", code=1)["error"]
    assert told["remedy"].startswith("Move it away; then fill a new one: `drkit store restore --from FILE`")
    damaged.rename(folder / "damaged.db")
    run(folder, "restore", "--from", str(file))


@pytest.mark.parametrize("harm", ["cut", "changed", "missing row", "no backup", "text", "none"])
def test_a_damaged_backup_is_refused_and_the_store_stays(folder, harm):
    file = folder / "copy.gz"
    run(folder, "backup", "--out", str(file))
    raw, lines = file.read_bytes(), gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.unlink()
    if harm == "cut":
        file.write_bytes(raw[: len(raw) // 2])
    elif harm == "changed":
        file.write_bytes(gzip.compress(b"".join(lines).replace(b'"billing"', b'"willing"')))
    elif harm == "missing row":
        file.write_bytes(gzip.compress(b"".join([*lines[:5], *lines[6:]])))
    elif harm == "no backup":
        file.write_bytes(gzip.compress(b'{"a": 1}\n'))
    elif harm == "text":
        file.write_text("dear diary")
    told = run(folder, "restore", "--from", str(file), "--replace", code=2 if harm == "none" else 1)
    assert str(file) in told["error"]["what"]
    assert told["error"]["remedy"]
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db", create=False)) as store:
        assert store.runs()


def test_a_backup_of_another_version_is_refused(folder):
    file = folder / "copy.gz"
    run(folder, "backup", "--out", str(file))
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    file.write_bytes(gzip.compress(b"".join([lines[0].replace(b'"schema":1', b'"schema":2'), *lines[1:]])))
    assert "schema version 2" in run(folder, "restore", "--from", str(file), "--replace", code=3)["error"]["what"]


def test_a_backup_overwrites_no_file(folder):
    file = folder / "copy.gz"
    file.write_text("mine")
    run(folder, "backup", "--out", str(file), code=3)
    assert file.read_text() == "mine"
    assert run(folder, "backup", "--out", str(folder / "none" / "x"), code=2)["error"]["remedy"]


def test_a_backup_is_of_one_moment(folder, tmp_path, monkeypatch):
    """What is written while it is made is in it altogether or not at all."""
    url = f"sqlite:///{folder}/drkit.db"
    with closing(open_whole_store(url)) as store, closing(open_whole_store(url)) as other:
        control = store.link_control

        def later(link: LinkId):
            other.put_notes(FILLED, "later", {"a": "b"})
            return control(link)

        monkeypatch.setattr(store, "link_control", later)
        write_backup(store, tmp_path / "one.gz", backend="sqlite")
    assert b'"later"' not in gzip.decompress((tmp_path / "one.gz").read_bytes())


def test_the_schema_needs_no_migration_and_another_one_is_refused(folder):
    for arguments in ([], ["--dry-run"]):
        assert run(folder, "migrate", *arguments)["steps"] == []
    with closing(sqlite3.connect(folder / "drkit.db", isolation_level=None)) as connection:
        connection.execute("UPDATE schema_version SET version = 2")
    assert "schema version 2" in run(folder, "migrate", code=3)["error"]["what"]
    (folder / "drkit.db").unlink()
    run(folder, "migrate", code=3)
    assert not (folder / "drkit.db").exists()


def test_what_is_no_backup_names_the_file(tmp_path):
    with pytest.raises(DrkitError, match="there is no file") as told:
        read_backup(tmp_path / "none.gz")
    assert not isinstance(told.value, Refused)


def test_a_store_is_migrated_by_one_command_with_its_backup(folder):
    copy = folder / "copy.gz"
    run(folder, "backup", "--out", str(copy))
    with newer():
        assert "drkit store migrate" in run(folder, "restore", "--from", str(copy), code=3)["error"]["remedy"]
        dry = run(folder, "migrate", "--dry-run")
        assert (dry["version"], dry["wanted"], dry["steps"], dry["migrated"]) == (
            1,
            2,
            ["2: a table of remarks"],
            False,
        )
        assert "--backup FILE" in run(folder, "migrate", code=3)["error"]["remedy"]
        dry = run(folder, "migrate", "--dry-run", "--backup", str(copy))
        assert dry["backup"]["rows"]["mapping"] == 5000
        done = run(folder, "migrate", "--backup", str(copy))
        assert (done["migrated"], run(folder, "migrate")["steps"]) == (True, [])
    assert "schema version 2" in run(folder, "backup", "--out", str(folder / "late.gz"), code=3)["error"]["what"]
    (folder / "drkit.db").rename(folder / "of-two.db")
    run(folder, "restore", "--from", str(copy))  # the way back


def test_a_run_that_is_not_over_is_ended_before_a_migration(folder):
    copy = folder / "copy.gz"
    with closing(open_whole_store(f"sqlite:///{folder}/drkit.db")) as store:
        store.put_run(replace(store.runs()[0], state="committed"))
    run(folder, "backup", "--out", str(copy))
    with newer():
        assert run(folder, "migrate", "--dry-run")["open_runs"] == ["01RUN"]
        assert "drkit resume 01RUN" in run(folder, "migrate", "--backup", str(copy), code=3)["error"]["remedy"]
