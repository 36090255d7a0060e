"""`drkit audit` and `drkit salvage` as programs: exit codes, one JSON document, no Java on any stream."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from drkit.audit.salvage import replay as replaying
from drkit.audit.salvage.replay import PROVENANCE, replay
from drkit.audit.salvage.salvage import salvage
from drkit.audit.spark.session import OWNER, spark_session
from drkit.kafka.config.client_config import confluent_config
from drkit.kafka.protocol.record_batch import parse
from drkit.model.audit.audit_result import AuditRequest, SalvageClass, SalvageKind, TopicChoice
from drkit.model.clock import now
from drkit.model.errors import ConfigError, ExitCode, Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import TopicPartition
from drkit.store import open_store
from tests.support.audits.damage import LINK, STAMP, Bench, Record, damaged, dense, forwarded, records, seeded
from tests.support.clusters import raw
from tests.support.collection.sampling import sampled, some_of
from tests.support.links.batches import batch_bytes, retouched

pytestmark = [pytest.mark.lab, pytest.mark.spark, some_of("audit verbs", 3)]

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"


def drkit(*arguments: str, config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drkit", *arguments, "--config", str(config), "--output", "json"]
    environment = os.environ | {"XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300, check=False
    )


def document(done: subprocess.CompletedProcess[str], schema: str) -> dict:
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))
    return found


def no_trace(done: subprocess.CompletedProcess[str]) -> None:
    assert "\tat " not in done.stderr
    assert "Traceback" not in done.stderr
    assert "java." not in done.stderr


@pytest.fixture
def damage(bench: Bench, unique_name: str):
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(120, rng=seeded(1)))
    source = bench.read("primary", topic, 0)
    made = damaged(source[:100], {"lost": 1, "corrupted": 1, "duplicated": 1, "foreign": 1, "swapped": 1}, seeded(2))
    bench.produce("dr", topic, 0, made.target)
    places = dense(source[:100])
    bench.remember(topic, {0: places})
    return topic, made


def test_the_audit_writes_one_document_and_ends_with_5_where_something_deviates(lab, damage, tmp_path):
    topic, made = damage

    done = drkit("audit", "--topic", f"{topic[:-1]}[0-9a-f]:0", config=lab.config_path, folder=tmp_path)

    assert done.returncode == 5, done.stderr
    no_trace(done)
    found = document(done, "audit")
    # The store of the lab knows nothing of this topic: content tells, and says so.
    assert (found["verdict"], found["basis"]) == ("deviated", "content")
    assert (found["source"], found["target"]) == ("primary", "dr")
    totals = found["totals"]
    assert (totals["lost"], totals["corrupted"], totals["duplicated"], totals["foreign"]) == (1, 1, 1, 1)
    assert (totals["reordered"], totals["unseen"], totals["matched"]) == (1, 20, 98)
    assert [each["kind"] for each in found["findings"][:5]] == [
        "lost",
        "corrupted",
        "duplicated",
        "foreign",
        "reordered",
    ]
    corrupted = found["findings"][1]
    key = made.target[corrupted["target_offset"]].key
    assert corrupted["target_key"] == (None if key is None else base64.b64encode(key).decode())
    assert corrupted["digest"] != corrupted["target_digest"]
    table = pq.read_table(found["findings_path"])
    assert table.num_rows == found["findings_total"] == 25
    assert str(table.schema.field("timestamp").type) == "timestamp[us, tz=UTC]"
    assert not found["findings_truncated"]
    assert [each.name for each in tmp_path.iterdir()] == ["state"]


def test_the_audit_ends_with_0_where_all_is_well_and_with_8_where_no_mapping_says_so(lab, unique_name, tmp_path):
    url = f"sqlite:///{tmp_path / 'mapping.db'}"
    bench = Bench(lab, open_store(url))
    topic = bench.create(unique_name)
    for alias in ("primary", "dr"):
        bench.produce(alias, topic, 0, records(10, rng=seeded(3)))
    bench.remember(topic, {0: {offset: offset for offset in range(10)}})
    bench.store.close()
    config = tmp_path / "drkit.toml"
    config.write_text(re.sub(r"(?m)^url = .*$", f'url = "{url}"', lab.config_path.read_text()))
    options = ["--topic", topic, "--fail-on", "unseen"]

    done = drkit("audit", *options, "--out", "found", config=config, folder=tmp_path)
    lost = tmp_path / "lost.toml"
    lost.write_text(config.read_text().replace("mapping.db", "lost.db"))
    without = drkit("audit", *options, "--out", "content", config=lost, folder=tmp_path)
    past = drkit("audit", "history", config=config, folder=tmp_path)
    trend = drkit("runs", "--trend", config=config, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    found = document(done, "audit")
    assert (found["verdict"], found["overdue"]) == ("clean", 0)
    assert without.returncode == 8
    assert document(without, "audit")["verdict"] == "incomplete"
    assert "there is no store" in without.stderr
    assert not (tmp_path / "lost.db").exists()
    assert [each["verdict"] for each in document(past, "audit-history")["audits"]] == ["clean"]
    assert trend.stdout == past.stdout
    assert pq.read_table(found["findings_path"]).num_rows == 0
    assert found["findings_path"] == str(tmp_path / "found" / "findings.parquet")


def configured(lab, folder: Path, topics: list[str], more: str) -> Path:
    """A configuration with a store of its own, and topics that both clusters hold, of which the first is mirrored from
    primary to dr. `more`: its links, and other clusters."""
    url = f"sqlite:///{folder / 'mapping.db'}"
    bench = Bench(lab, open_store(url))
    for topic in map(bench.create, topics):
        for alias in ("primary", "dr"):
            bench.produce(alias, topic, 0, records(10, rng=seeded(3)))
    bench.remember(topics[0], {0: {offset: offset for offset in range(10)}})
    bench.store.close()
    config = folder / "drkit.toml"
    config.write_text(
        f'[clusters.primary]\nbootstrap_servers = "{lab.bootstrap("primary")}"\n'
        f'[clusters.dr]\nbootstrap_servers = "{lab.bootstrap("dr")}"\n'
        f'[store]\nurl = "{url}"\n{more}'
    )
    return config


def test_a_link_whose_audit_fails_is_in_no_other_s_way_and_leaves_a_trace(lab, unique_name, tmp_path):
    config = configured(
        lab,
        tmp_path,
        [unique_name],
        '[clusters.gone]\nbootstrap_servers = "127.0.0.1:1"\n'
        f'[[links]]\nsource = "primary"\ntarget = "dr"\ntopics = ["{unique_name}"]\n'
        '[[links]]\nsource = "gone"\ntarget = "dr"\ntopics = ["nowhere"]\n',
    )

    both = drkit("audit", config=config, folder=tmp_path)
    alone = drkit("audit", "--link", "gone->dr", config=config, folder=tmp_path)
    past = drkit("audit", "history", config=config, folder=tmp_path)

    found = document(both, "audit")
    assert (both.returncode, found["verdict"]) == (8, "incomplete"), both.stderr
    assert [(each["source"], each["verdict"], each["totals"]["matched"]) for each in found["links"]] == [
        ("primary", "clean", 10)
    ]
    assert [each["link"] for each in found["failures"]] == ["gone->dr"]
    assert alone.returncode == 1
    listed = {(each["link"], each["verdict"]) for each in document(past, "audit-history")["audits"]}
    assert listed == {("primary->dr", "clean"), ("gone->dr", "failed")}


def test_topics_of_several_links_are_each_looked_for_where_they_are(lab, unique_name, tmp_path):
    here, back = f"{unique_name}.here", f"{unique_name}.back"
    config = configured(
        lab,
        tmp_path,
        [here, back],
        f'[[links]]\nsource = "primary"\ntarget = "dr"\ntopics = ["{here}"]\n'
        f'[[links]]\nsource = "dr"\ntarget = "primary"\ntopics = ["{back}"]\n',
    )

    both = drkit("audit", "--topic", here, "--topic", back, config=config, folder=tmp_path)
    one = drkit("audit", "--topic", here, config=config, folder=tmp_path)
    kept = drkit("salvage", "--out", "kept", "--topic", here, "--topic", back, config=config, folder=tmp_path)
    none = [
        drkit(*verb, "--topic", here, "--topic", "nowhere", config=config, folder=tmp_path)
        for verb in (("audit",), ("salvage", "--out", "none"))
    ]

    found = document(both, "audit")
    assert [(each["link"], each["topic"]) for each in found["topics"]] == [("primary->dr", here), ("dr->primary", back)]
    assert found["failures"] == []
    assert (one.returncode, document(one, "audit")["source"]) == (0, "primary"), one.stderr
    assert [each["link"] for each in json.loads(kept.stdout)["links"]] == ["primary->dr", "dr->primary"], kept.stderr
    for done in none:
        assert (done.returncode, "--topic nowhere" in done.stdout) == (2, True), done.stdout


def test_a_spark_that_does_not_start_says_why(lab, bench, unique_name, tmp_path):
    topic = bench.create(unique_name)

    for option, value, code in (("--master", "nonsense", 2), ("--spark-conf", "spark.task.cpus=nonsense", 1)):
        done = drkit("audit", "--topic", topic, option, value, config=lab.config_path, folder=tmp_path)
        assert done.returncode == code
        assert "\tat " not in done.stderr
        assert "Traceback" not in done.stderr
        assert "nonsense" in document(done, "error")["error"]["what"]


def test_a_cluster_that_does_not_answer_is_named(lab, tmp_path):
    config = tmp_path / "drkit.toml"
    config.write_text(
        '[clusters.primary]\nbootstrap_servers = "127.0.0.1:1"\n'
        f'[clusters.dr]\nbootstrap_servers = "{lab.bootstrap("dr")}"\n'
        '[store]\nurl = "sqlite:///drkit.db"\n[[links]]\nsource = "primary"\ntarget = "dr"\n'
    )

    done = drkit("audit", config=config, folder=tmp_path)

    assert done.returncode == 1
    no_trace(done)
    assert "primary" in document(done, "error")["error"]["what"]


def test_salvage_keeps_all_that_only_the_source_holds(bench, spark, damage, tmp_path):
    topic, made = damage
    lost = {offset for kind, offset, _ in made.findings if kind == "lost"}
    corrupted = {offset for kind, offset, _ in made.findings if kind == "corrupted"}
    wanted = lost | corrupted | set(range(100, 120))
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))

    result = salvage(request, bench.store, bench.config, spark)

    assert result.records == {
        SalvageKind.LOST: 1,
        SalvageKind.CORRUPTED: 1,
        SalvageKind.UNSEEN: 20,
        SalvageKind.UNREADABLE: 0,
        SalvageKind.RETIRED: 0,
    }
    assert result.through == {f"{topic}:0": 120}
    there = {each.offset: each.record for each in bench.read("primary", topic, 0)}
    rows = pq.read_table(Path(result.path) / "records.parquet").to_pylist()
    assert [row["offset"] for row in rows] == sorted(wanted)
    for row in rows:
        headers = tuple((header["key"], header["value"]) for header in row["headers"])
        stamp = round(row["timestamp"].timestamp() * 1000)
        assert Record(row["key"], row["value"], stamp, headers) == there[row["offset"]]
    manifest = json.loads(Path(result.manifest).read_text())
    assert manifest["records"] == {"unseen": 20, "lost": 1, "corrupted": 1, "unreadable": 0, "retired": 0}
    for file in manifest["files"]:
        content = (Path(result.path) / file["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    listed = {file["path"] for file in manifest["files"]} | {"manifest.json"}
    on_disk = {path.relative_to(result.path).as_posix() for path in Path(result.path).rglob("*") if path.is_file()}
    assert on_disk == listed
    written = [Path(result.path), *(path for path in Path(result.path).rglob("*") if path.name != "manifest.json")]
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in written} == {0}, "what Spark writes is its owner's"
    lines = [
        json.loads(line)
        for path in sorted((Path(result.path) / "replay").iterdir())
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    assert {line["offset"]: replayed(line) for line in lines} == {offset: there[offset] for offset in wanted}
    with pytest.raises(Refused, match="not empty"):
        salvage(request, bench.store, bench.config, spark)


def replayed(line: dict) -> Record:
    def plain(text: str | None) -> bytes | None:
        return None if text is None else base64.b64decode(text, validate=True)

    headers = tuple((header["key"], plain(header["value"])) for header in line["headers"])
    return Record(plain(line["key"]), plain(line["value"]), line["timestamp_ms"], headers)


def test_a_topic_to_replay_into_that_there_is_not_is_told_before_a_salvage_is_made(lab, damage, tmp_path):
    topic, _ = damage
    words = ("salvage", "--out", "kept", "--topic", topic, "--replay-to", f"{topic}.nowhere")
    done = drkit(*words, config=lab.config_path, folder=tmp_path)
    assert done.returncode == 3, done.stderr
    assert f"{topic}.nowhere does not exist on dr" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_salvaged_records_are_replayed_once_however_often_it_is_run(lab, bench, spark, damage, monkeypatch, tmp_path):
    monkeypatch.setattr(replaying, "_RECORDS_A_TRANSACTION", 5)
    topic, _ = damage
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))
    kept = salvage(request, bench.store, bench.config, spark)
    into = bench.create(f"{topic}.replayed", partitions=2, on=["dr"])
    bench.produce("dr", into, 0, [Record(b"other", b"record", STAMP)], transactions="c")

    def interrupt(text: str) -> None:
        if "records written" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay(
            tmp_path / "kept", into, LINK, bench.config, bench.store, approved=tuple(SalvageClass), progress=interrupt
        )
    everything = tuple(SalvageClass)
    again = replay(tmp_path / "kept", into, LINK, bench.config, bench.store, approved=everything)
    approve = [word for each in everything for word in ("--approve", each.value)]
    by_verb = drkit(
        *("salvage", "--out", "kept", "--replay-to", into, *approve), config=lab.config_path, folder=tmp_path
    )

    assert (again.written, again.there_already) == (kept.total - 5, 5)
    assert by_verb.returncode == 0, by_verb.stderr
    found = document(by_verb, "salvage")
    assert found["replayed"] == {
        "topic": into,
        "written": 0,
        "there_already": kept.total,
        "not_approved": 0,
        "not_chosen": 0,
        "conflicting_since": 0,
        "unwritable": 0,
        "warnings": [],
    }
    there = {each.offset: each.record for each in bench.read("primary", topic, 0)}
    with bench.admin("primary") as admin:
        origin = f"{admin.cluster_id()}/{topic}/0/"
    landed = [each.record for each in bench.read("dr", into, 0) if each.record.key != b"other"]
    marks = [dict(each.headers)[PROVENANCE].decode() for each in landed]
    offsets = [int(mark.removeprefix(origin).split("/")[0]) for mark in marks]
    assert len(offsets) == kept.total
    assert [replace(each, headers=each.headers[:-1]) for each in landed] == [there[offset] for offset in offsets]


def sealed(bench: Bench) -> None:
    """The link as after a failover: what follows on dr is its own."""
    control = LinkControl(LINK, Direction.SEALED, version=1, changed_at=now(), reason="failed over")
    assert bench.store.set_link_control(control, expected_version=None)


def test_salvaged_records_are_classed_and_replayed_by_class(lab, bench, spark, unique_name, monkeypatch, tmp_path):
    """Twelve records, ten of them mirrored; then dr was failed over to and got newer values of two keys."""
    topic = bench.create(unique_name)
    source = [Record(b"k%d" % n, b"value %d" % n, STAMP + n) for n in range(16)]
    source[11] = Record(None, b"no key", STAMP)
    target = source[:10]
    target[5] = replace(target[5], value=b"altered")
    del target[8]
    bench.produce("primary", topic, 0, source)
    # on dr: k13 was written at an offset below k13's place here, k8 lies behind its place, 14 was sent again
    since = [Record(b"k13", b"newer on dr", STAMP), Record(b"k8", b"newer on dr", STAMP), source[14]]
    bench.produce("dr", topic, 0, [*target, *since])
    bench.remember(topic, {0: {n: n for n in range(10)}}, target_end={0: 9})
    sealed(bench)
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))
    context = spark_session(spark).sparkContext
    context.setJobGroup(unique_name, "counted")

    result = salvage(request, bench.store, bench.config, spark)
    jobs = len(context.statusTracker().getJobIdsForGroup(unique_name))
    with monkeypatch.context() as patch:  # as where there are too many for the driver, and for one task
        patch.setattr("drkit.audit.compare.first_pass.MEMORY_BUDGET", 0)
        patch.setattr("drkit.audit.salvage.salvage._FEW", -1)
        many = salvage(replace(request, out=str(tmp_path / "many")), bench.store, bench.config, spark)

    rows = pq.read_table(Path(result.path) / "records.parquet").to_pylist()
    assert pq.read_table(Path(many.path) / "records.parquet").to_pylist() == rows
    assert (many.records, many.standings) == (result.records, result.standings)
    assert jobs <= 20
    assert {row["offset"]: (row["kind"], row["standing"]) for row in rows} == {
        5: ("corrupted", "new"),
        8: ("lost", "conflicting"),
        10: ("unseen", "new"),
        11: ("unseen", "new"),
        12: ("unseen", "new"),
        13: ("unseen", "conflicting"),
        14: ("unseen", "identical"),
        15: ("unseen", "new"),
    }
    assert result.standings == {SalvageClass.NEW: 5, SalvageClass.CONFLICTING: 2, SalvageClass.IDENTICAL: 1}
    into = bench.create(f"{topic}.replayed", on=["dr"])
    bench.produce("dr", topic, 0, [Record(b"k15", b"written on dr after the salvage", STAMP)])
    bench.produce("dr", into, 0, [Record(b"k12", b"somebody's, in the topic that is replayed into", STAMP)])
    ran = [
        drkit("salvage", "--out", "kept", "--replay-to", into, *words, config=lab.config_path, folder=tmp_path)
        for words in (["--topic", f"{topic}:0"], ["--approve", "new", "--approve", "conflicting"])
    ]
    documents = [document(done, "salvage") for done in ran]
    names = ("written", "there_already", "not_approved", "conflicting_since")
    found = [tuple(each["replayed"][name] for name in names) for each in documents]
    assert found == [(3, 0, 5, 2), (4, 3, 1, 2)], "what is new by default, and judged by key once more"
    landed = [each.record.key for each in bench.read("dr", into, 0)]
    assert landed == [b"k12", b"k5", b"k10", None, b"k8", b"k12", b"k13", b"k15"]
    assert documents[0]["standings"] == {"new": 5, "conflicting": 2, "identical": 1}
    elsewhere = drkit(
        *("salvage", "--out", "kept", "--replay-to", into, "--topic", "other"), config=lab.config_path, folder=tmp_path
    )
    assert elsewhere.returncode == 2, elsewhere.stderr


def test_a_header_name_that_is_no_text_is_kept_as_it_is_and_never_written_as_another(
    lab, bench, spark, unique_name, tmp_path
):
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    rows = [(STAMP, b"a", b"1", [("plain", b"h")]), (STAMP, b"b", b"2", [("plain", b"h"), ("xx", b"1")])]
    data = retouched(batch_bytes(rows).replace(b"xx", b"\xfex"))
    for alias, name in (("primary", topic), ("dr", into)):  # somebody has written such a name there, too
        batch = next(parse(memoryview(data)))
        raw.produce(bench.config.clusters[alias].bootstrap_servers, name, 0, forwarded(batch))
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))

    kept = salvage(request, bench.store, bench.config, spark)
    approve = [word for each in SalvageClass for word in ("--approve", each.value)]
    done = drkit("salvage", "--out", "kept", "--replay-to", into, *approve, config=lab.config_path, folder=tmp_path)

    first, second = pq.read_table(Path(kept.path) / "records.parquet").to_pylist()
    assert [(each["key"], each["key_bytes"]) for each in first["headers"]] == [("plain", None)]
    assert [(each["key"], each["key_bytes"]) for each in second["headers"]] == [("plain", None), ("\ufffdx", b"\xfex")]
    lines = [
        json.loads(line)
        for path in (Path(kept.path) / "replay").iterdir()
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    names = [base64.b64decode(each["key_bytes"] or "") for line in lines for each in line["headers"]]
    assert sorted(names) == [b"", b"", b"\xfex"]
    assert done.returncode == 8, done.stderr
    replayed = document(done, "salvage")["replayed"]
    assert (replayed["written"], replayed["unwritable"]) == (1, 1)


def test_only_the_topics_named_are_replayed(lab, bench, spark, unique_name, tmp_path):
    topics = [bench.create(f"{unique_name}.{name}", on=["primary"]) for name in ("a", "b")]
    for topic in topics:
        bench.produce("primary", topic, 0, records(7, rng=seeded(5)))
    request = AuditRequest(bench.link, str(tmp_path / "kept"), tuple(TopicChoice(topic) for topic in topics))
    salvage(request, bench.store, bench.config, spark)
    into = bench.create(f"{unique_name}.replayed", on=["dr"])
    verb = ("salvage", "--out", "kept", "--replay-to", into, "--topic", topics[1])

    done = drkit(*verb, config=lab.config_path, folder=tmp_path)

    replayed = document(done, "salvage")["replayed"]
    assert (replayed["written"], replayed["not_chosen"]) == (7, 7)
    names = [dict(each.record.headers)[PROVENANCE].decode() for each in bench.read("dr", into, 0)]
    assert {name.split("/")[1] for name in names} == {topics[1]}


@pytest.mark.parametrize("why", sampled("a salvage of what dr lost", ["deleted", "recreated", "cut"], 1))
def test_salvage_keeps_what_the_target_held_and_holds_no_more(bench, spark, unique_name, tmp_path, why):
    """Whatever took it away there: the mirror's own record of it is no copy."""
    topic = bench.create(unique_name)
    source = [Record(b"k%d" % (n % 10), b"value %d" % n, STAMP + n) for n in range(20)]
    bench.produce("primary", topic, 0, source)
    bench.produce("dr", topic, 0, source)
    bench.remember(topic, {0: {n: n for n in range(20)}})
    sealed(bench)
    with bench.admin("dr") as admin:
        if why in {"deleted", "recreated"}:
            admin.delete_topics([topic])
        if why == "recreated":
            bench.create(topic, on=["dr"])
            bench.produce("dr", topic, 0, [Record(b"k3", b"a new life", STAMP)])
        if why == "cut":
            admin.delete_records({TopicPartition(topic, 0): 12})
    wanted = {"deleted": range(20), "recreated": range(20), "cut": range(12)}[why]
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))

    result = salvage(request, bench.store, bench.config, spark)

    rows = pq.read_table(Path(result.path) / "records.parquet").to_pylist()
    assert [row["offset"] for row in rows] == list(wanted)
    assert result.by_topic == {topic: len(wanted)}
    if why == "recreated":
        standings = {row["offset"]: row["standing"] for row in rows}
        assert {offset for offset, standing in standings.items() if standing == "conflicting"} == {3, 13}


def test_a_salvage_that_was_changed_is_not_replayed(bench, spark, unique_name, tmp_path):
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(3, rng=seeded(4)))
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))
    salvage(request, bench.store, bench.config, spark)
    file = next((tmp_path / "kept" / "records.parquet").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"?")

    with pytest.raises(Refused, match="does not match the salvage's manifest"):
        replay(tmp_path / "kept", topic, LINK, bench.config, bench.store)
    with pytest.raises(Refused, match="no complete salvage"):
        replay(tmp_path, topic, LINK, bench.config, bench.store)


def test_salvage_says_what_open_transactions_hold(lab, bench, spark, unique_name, tmp_path):
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(5, rng=seeded(5)))
    producer = Producer(confluent_config(bench.config.clusters["primary"]) | {"transactional.id": unique_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, b"not committed")
    assert producer.flush(30) == 0
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))

    result = salvage(request, bench.store, bench.config, spark)
    done = drkit("salvage", "--out", "again", "--topic", topic, config=lab.config_path, folder=tmp_path)

    producer.abort_transaction(30)
    assert (result.total, result.through, result.uncommitted) == (5, {f"{topic}:0": 5}, {f"{topic}:0": 8})
    assert done.returncode == ExitCode.UNKNOWN
    assert document(done, "salvage")["uncommitted"] == result.uncommitted


def test_what_may_stand_behind_an_open_transaction_on_the_target_is_no_older_value(bench, spark, unique_name, tmp_path):
    """A client's producer died on dr after the failover, and others have written behind it, of any key."""
    topic, quiet = (bench.create(f"{unique_name}.{name}") for name in ("open", "quiet"))
    for name in (topic, quiet):
        bench.produce("primary", name, 0, [Record(b"k%d" % n, b"value", STAMP + n) for n in range(5)])
    sealed(bench)
    producer = Producer(confluent_config(bench.config.clusters["dr"]) | {"transactional.id": unique_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, key=b"other", value=b"not committed", partition=0)
    assert producer.flush(30) == 0
    bench.produce("dr", topic, 0, [Record(b"k3", b"newer on dr", STAMP)])
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic), TopicChoice(quiet)))

    result = salvage(request, bench.store, bench.config, spark)

    producer.abort_transaction(30)
    rows = pq.read_table(Path(result.path) / "records.parquet").to_pylist()
    assert {(row["topic"], row["standing"]) for row in rows} == {(topic, "conflicting"), (quiet, "new")}


def test_what_a_killed_salvage_left_is_in_no_other_s_way_and_removed(bench, spark, unique_name, tmp_path):
    """In a container the next process has the same id."""
    topic = bench.create(unique_name)
    bench.produce("primary", topic, 0, records(3, rng=seeded(7)))
    (tmp_path / f".kept.{os.getpid()}.partial" / "records.parquet").mkdir(parents=True)
    left = tmp_path / ".drkit-salvage-of-a-killed-process"
    (left / "another-name" / "records.parquet").mkdir(parents=True)
    (left / OWNER).touch()
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice(topic),))

    assert salvage(request, bench.store, bench.config, spark).total == 3

    assert not left.exists()
    assert not list(tmp_path.glob(".drkit-salvage-*"))


def test_nothing_to_salvage_is_a_whole_salvage_too(lab, bench, unique_name, tmp_path):
    topic = bench.create(unique_name)

    done = drkit("salvage", "--topic", topic, "--out", "kept", config=lab.config_path, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    found = document(done, "salvage")
    assert found["total"] == 0
    assert json.loads(Path(found["manifest"]).read_text())["records"] == {
        "unseen": 0,
        "lost": 0,
        "corrupted": 0,
        "unreadable": 0,
        "retired": 0,
    }
    assert pq.read_table(tmp_path / "kept" / "records.parquet").num_rows == 0


def test_a_topic_that_is_nowhere_is_a_usage_error(bench, spark, tmp_path):
    request = AuditRequest(bench.link, str(tmp_path / "kept"), (TopicChoice("no-such-topic"),))

    with pytest.raises(ConfigError, match="no such topic"):
        salvage(request, bench.store, bench.config, spark)
    assert not (tmp_path / "kept").exists()
