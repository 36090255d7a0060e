"""Replays of salvages that are written by hand: each record once, and none in a newer one's place."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from drkit.audit.salvage import replay as replaying
from drkit.audit.salvage.replay import Replayed, replay
from drkit.audit.salvage.salvage_folder import FORMAT, MANIFEST, PARQUET
from drkit.drill.environment.log_surgery import stopped
from drkit.files import sha256_of
from drkit.kafka.config.client_config import confluent_config
from drkit.model.errors import Refused
from drkit.model.topology import TopicPartition
from tests.support.audits.damage import LINK, STAMP, Bench, Record

pytestmark = pytest.mark.lab

ROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("standing", pa.string()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("key_bytes", pa.binary())]))),
    ]
)


def kept(folder: Path, bench: Bench, topic: str, found: Sequence[Record], *, first: int = 0, compared: int = 0) -> Path:
    """A salvage of new records that stand at the offsets from `first` on of the topic's partition 0."""
    rows = [
        {
            "topic": topic,
            "partition": 0,
            "offset": first + at,
            "standing": "new",
            "timestamp_ms": each.stamp,
            "key": each.key,
            "value": each.value,
            "headers": [{"key": name, "value": value, "key_bytes": None} for name, value in each.headers],
        }
        for at, each in enumerate(found)
    ]
    (folder / PARQUET).mkdir(parents=True)
    (folder / "replay").mkdir()
    table, lines = folder / PARQUET / "part-0.parquet", folder / "replay" / "part-0.json.gz"
    pq.write_table(pa.Table.from_pylist(rows, schema=ROW), table)
    lines.write_bytes(gzip.compress(b"{}\n" * len(rows)))
    with bench.admin("primary") as primary, bench.admin("dr") as dr:
        on_target = dr.topics([topic]).get(topic)
        batch = dr.batches_at({TopicPartition(topic, 0): compared - 1})[TopicPartition(topic, 0)] if compared else None
        last = None if batch is None or batch.last_offset != compared - 1 else batch._asdict()
        manifest = {
            "format": FORMAT,
            "source": LINK.source,
            "target": LINK.target,
            "source_cluster_id": primary.cluster_id(),
            "target_cluster_id": dr.cluster_id(),
            "records": {"unseen": len(rows)},
            "partitions": [
                {
                    "topic": topic,
                    "partition": 0,
                    "through": first + len(rows),
                    "target_topic": topic,
                    "target_topic_id": None if on_target is None else on_target.topic_id,
                    "target_through": compared,
                    "target_batch": last,
                }
            ],
            "files": [
                {"path": path.relative_to(folder).as_posix(), "records": len(rows), "sha256": sha256_of(path)}
                for path in (table, lines)
            ],
        }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return folder


def numbered(count: int, word: str = "value") -> list[Record]:
    return [Record(b"k%d" % n, b"%s %d" % (word.encode(), n), STAMP + n) for n in range(count)]


def log_end(bench: Bench, topic: str) -> int:
    with bench.admin("dr") as admin:
        return admin.end_offsets([TopicPartition(topic, 0)], committed=False)[TopicPartition(topic, 0)]


def keys_of(bench: Bench, topic: str) -> list[bytes | None]:
    return [each.record.key for each in bench.read("dr", topic, 0)]


@pytest.mark.parametrize("held", ["into", "compared"])
def test_what_stands_behind_an_open_transaction_is_waited_for_never_taken_for_nothing(
    bench, unique_name, monkeypatch, tmp_path, held
):
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    folder = kept(tmp_path / "kept", bench, topic, numbered(20))
    what = (folder, into, LINK, bench.config, bench.store)
    open_on = {"into": into, "compared": topic}[held]
    producer = Producer(confluent_config(bench.config.clusters["dr"]) | {"transactional.id": unique_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(open_on, key=b"k3", value=b"newer", partition=0)
    assert producer.flush(30) == 0

    with monkeypatch.context() as patch:
        patch.setattr(replaying, "_OPEN_SECONDS", 0.0)
        with pytest.raises(Refused, match=f"a transaction is open on dr: {open_on}:0 from offset 0 to 0"):
            replay(*what)
    assert log_end(bench, into) == (1 if held == "into" else 0), "nothing was written"

    def end(text: str) -> None:
        if "waiting for a transaction" in text:
            producer.commit_transaction(30)

    found = replay(*what, progress=end)
    assert (found.written, found.not_approved, found.conflicting_since) == (19, 1, 1), "k3 is newer there"
    assert (replay(*what).written, replay(*what).there_already) == (0, 19)


def test_a_replay_that_is_overtaken_writes_nothing_that_the_next_one_has_not_read(
    bench, unique_name, monkeypatch, tmp_path
):
    """The first stands still behind its first transaction, and goes on once the second has looked at the topic."""
    monkeypatch.setattr(replaying, "_RECORDS_A_TRANSACTION", 5)
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    found = numbered(20)
    folder = kept(tmp_path / "kept", bench, topic, found)
    what = (folder, into, LINK, bench.config, bench.store)
    begun, go_on = threading.Event(), threading.Event()
    outcome: list[Replayed | Refused] = []

    def stand_still(text: str) -> None:
        if "records written" in text:
            begun.set()
            assert go_on.wait(120)

    def first() -> None:
        try:
            outcome.append(replay(*what, progress=stand_still))
        except Refused as refused:
            outcome.append(refused)
        finally:
            begun.set()

    def let_it_go_on(text: str) -> None:
        if "looking for keys" in text:
            go_on.set()
            overtaken.join(120)

    overtaken = threading.Thread(target=first)
    overtaken.start()
    assert begun.wait(120)
    second = replay(*what, progress=let_it_go_on)

    assert (second.written, second.there_already) == (15, 5)
    assert keys_of(bench, into) == [each.key for each in found]
    (refused,) = outcome
    assert isinstance(refused, Refused)
    assert f"another replay into {into} has begun" in str(refused)


def test_what_a_recreated_source_topic_has_at_the_same_offsets_is_written_too(bench, unique_name, tmp_path):
    """A failback makes the primary's topics anew on the same cluster: a second salvage of the same offsets."""
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    earlier, later = numbered(20), [Record(b"new%d" % n, b"later", STAMP + n) for n in range(10)]
    later[3] = Record(b"k3", b"later", STAMP + 100)
    both = [
        (kept(tmp_path / str(at), bench, topic, found, first=1_000), into, LINK, bench.config, bench.store)
        for at, found in enumerate((earlier, later))
    ]

    assert replay(*both[0]).written == 20
    second = replay(*both[1])

    # which of both has the newer value of k3 can't be told: whoever runs it says
    assert (second.written, second.there_already, second.conflicting_since) == (9, 0, 1)
    assert keys_of(bench, into) == [each.key for each in (*earlier, *later[:3], *later[4:])]
    again = [replay(*each) for each in both]
    assert [(each.written, each.there_already) for each in again] == [(0, 20), (0, 9)]


@pytest.mark.parametrize("why", ["recreated", "another cluster"])
def test_what_a_recreated_target_topic_holds_was_written_since(bench, unique_name, tmp_path, why):
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    folder = kept(tmp_path / "kept", bench, topic, numbered(20), compared=2)
    newer = [Record(b"k%d" % n, b"newer", STAMP) for n in range(5)]
    if why == "recreated":
        with bench.admin("dr") as admin:
            admin.delete_topics([topic])
        bench.create(topic, on=["dr"])
    else:
        manifest = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps(manifest | {"target_cluster_id": "another"}))
    bench.produce("dr", topic, 0, newer)

    found = replay(folder, into, LINK, bench.config, bench.store)

    assert (found.written, found.conflicting_since) == (15, 5)
    assert keys_of(bench, into) == [b"k%d" % n for n in range(5, 20)]


def test_a_compared_topic_that_lost_its_end_and_grew_again_holds_what_was_written_since(
    lab, bench, unique_name, tmp_path
):
    """Its log ends beyond where it was compared: below that end stand newer values of keys that nobody judged."""
    topic, into = bench.create(unique_name), bench.create(f"{unique_name}.replayed", on=["dr"])
    for each in numbered(6, "compared"):
        bench.produce("dr", topic, 0, [each])
    folder = kept(tmp_path / "kept", bench, topic, numbered(20), compared=6)
    with stopped(lab, "dr-1") as disk:
        assert disk.cut(topic, 0, 3) == 3
    for each in numbered(5, "newer"):
        bench.produce("dr", topic, 0, [each])
    assert log_end(bench, topic) == 8

    found = replay(folder, into, LINK, bench.config, bench.store)

    # of the first keys there are records now that the salvage was compared with, and newer ones: both count
    assert (found.written, found.conflicting_since) == (15, 5)
    assert f"{topic}:0 on dr lost the end that the salvage was compared with" in found.warnings[0]


def test_where_the_cleaner_may_have_written_the_compared_end_anew_what_stands_there_counts_as_written_since(
    lab, bench, unique_name, tmp_path
):
    """A dr that was set back as a whole gives out its leader epochs again, and a compacted log's last batch tells
    nothing: newer values stand where the last two records were compared."""
    topic = bench.create(unique_name, config={"cleanup.policy": "compact"})
    into = bench.create(f"{unique_name}.replayed", on=["dr"])
    compared = numbered(6, "compared")
    for each in compared[:4]:
        bench.produce("dr", topic, 0, [each])
    with stopped(lab, "dr-1") as disk:
        disk.copy_to(tmp_path / "copy")
    for each in compared[4:]:
        bench.produce("dr", topic, 0, [each])
    folder = kept(tmp_path / "kept", bench, topic, numbered(20), compared=6)
    with stopped(lab, "dr-1") as disk:
        disk.set_back(tmp_path / "copy")
    for each in numbered(5, "newer"):
        bench.produce("dr", topic, 0, [each])

    found = replay(folder, into, LINK, bench.config, bench.store)

    assert (found.written, found.conflicting_since) == (15, 5)
    assert f"nothing shows that {topic}:0 on dr still hold" in found.warnings[0]
