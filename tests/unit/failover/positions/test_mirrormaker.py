"""Positions from what MirrorMaker 2 keeps: never past an unread record, and never more read again than said."""

import struct
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drkit.failover.positions.mirrormaker_positions import answer, parse_positions_from, positions_by_mirrormaker
from drkit.failover.snapshot.selection import Selection
from drkit.kafka.groups.mirrormaker import (
    Checkpoint,
    MirrorMakerOffsets,
    OffsetSync,
    by_partition,
    decode_checkpoint,
    decode_sync,
    newest,
)
from drkit.model.errors import ConfigError
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import AT as AT_WORLD
from tests.unit.failover.plan.worlds import Log, position, world

TP = TopicPartition("orders", 3)
AT = datetime(2026, 11, 20, tzinfo=UTC)


def text(value):
    return struct.pack(">h", len(value)) + value.encode()


def checkpoint(upstream, downstream, group="billing"):
    return Checkpoint(group, TP, upstream, downstream, "", AT)


def test_records_are_read_as_mirrormaker_writes_them():
    key = text("billing") + text("orders") + struct.pack(">i", 3)
    value = struct.pack(">hqq", 0, 900, 870) + text("note")
    assert decode_checkpoint(key, value, AT) == Checkpoint("billing", TP, 900, 870, "note", AT)
    assert decode_sync(text("orders") + struct.pack(">i", 3), struct.pack(">qq", 7, 5)) == OffsetSync(TP, 7, 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (text("g") + text("t") + struct.pack(">i", 0), struct.pack(">hqq", 1, 0, 0) + text("")),
        (text("g") + text("t") + struct.pack(">i", 0), struct.pack(">hq", 0, 0)),
        (struct.pack(">h", 99) + b"short", b""),
    ],
)
def test_anything_else_is_refused(key, value):
    with pytest.raises(ValueError, match=r"MirrorMaker 2|version 1"):
        decode_checkpoint(key, value, AT)


def test_the_newest_checkpoint_counts_and_syncs_of_a_topic_made_anew_stand_alone():
    assert newest([checkpoint(1, 1), checkpoint(9, 8), checkpoint(2, 2, "a")]) == (
        checkpoint(2, 2, "a"),
        checkpoint(9, 8),
    )
    old = [OffsetSync(TP, upstream, upstream) for upstream in (0, 100, 200)]
    assert by_partition(old)[TP] == tuple(old)
    anew = [OffsetSync(TP, 0, 300), OffsetSync(TP, 50, 350)]
    assert by_partition([*old, *anew])[TP] == tuple(anew)


@given(
    present=st.lists(st.booleans(), min_size=1, max_size=60),
    markers=st.sets(st.integers(0, 60), max_size=10),
    synced=st.sets(st.integers(0, 60), max_size=8),
    commit=st.integers(0, 60),
    checked=st.integers(0, 60) | st.none(),
)
def test_no_unread_record_is_passed_and_no_more_is_read_again_than_said(present, markers, synced, commit, checked):
    """Against a log known record by record: holes on the source, offsets of its own on the target."""
    places, end = {}, 0
    for offset, there in enumerate(present):
        end += offset in markers
        if there:
            places[offset] = end
            end += 1
    commit = min(commit, len(present))
    syncs = tuple(OffsetSync(TP, offset, places[offset]) for offset in sorted(synced & places.keys()))
    said = None
    if checked is not None:
        floor = [sync for sync in syncs if sync.upstream <= checked]
        if floor:  # MirrorMaker 2's own rule
            said = checkpoint(checked, floor[-1].downstream + (floor[-1].upstream < checked))
    found = answer(commit, syncs, said, 0, end)
    if found is None:
        assert not [sync for sync in syncs if sync.upstream <= commit]
        return
    unread = [place for offset, place in places.items() if offset >= commit]
    again = [place for offset, place in places.items() if offset < commit and place >= found.target_offset]
    assert all(place >= found.target_offset for place in unread)
    assert found.at_most is not None
    assert len(again) <= found.at_most


def test_inside_the_targets_log():
    syncs = (OffsetSync(TP, 0, 0), OffsetSync(TP, 100, 90))
    assert answer(150, syncs, None, 0, 500).target_offset == 91
    assert answer(150, syncs, None, 0, 500).at_most == 49
    assert answer(150, syncs, checkpoint(140, 120), 0, 500).target_offset == 120
    assert answer(150, syncs, checkpoint(160, 140), 0, 500).target_offset == 91, "a checkpoint beyond the commit"
    assert (answer(100, syncs, None, 0, 500).target_offset, answer(100, syncs, None, 0, 500).at_most) == (90, 0)
    assert answer(150, syncs, None, 300, 500).target_offset == 300
    assert answer(150, syncs, checkpoint(140, 120), 0, 95).target_offset == 95
    assert answer(50, (OffsetSync(TP, 60, 55),), None, 0, 95) is None
    alone = answer(150, (), checkpoint(140, 120), 0, 200)
    assert (alone.target_offset, alone.at_most, alone.by_sync) == (120, 80, False)


def test_the_option():
    assert parse_positions_from(None) is None
    assert parse_positions_from("mm2") == ""
    assert parse_positions_from("mm2:EU") == "EU"
    for wrong in ("mm3", "mm2:", "x:y"):
        with pytest.raises(ConfigError):
            parse_positions_from(wrong)


def test_a_group_may_have_read_on_since_its_checkpoint():
    """At most as many were told as lay between two syncs, however old the checkpoint was."""
    log = Log("r" * 100)
    tp = TopicPartition("t", 0)
    syncs = {tp: (OffsetSync(tp, 0, 0), OffsetSync(tp, 20, 20))}
    for exact in (10, 20):
        seen = world([log.view()], [position(exact)])
        offsets = MirrorMakerOffsets((Checkpoint("billing", tp, exact, exact, "", AT_WORLD),), syncs)
        for final in (False, True):
            (found,) = positions_by_mirrormaker(seen, offsets, Selection(), final=final)
            assert (found.reread, found.reread_at_most) == (None, 100 - found.target_offset)
            assert "it may have read on" in found.reason
    read = replace(seen, positions=(position(20)._replace(captured_at=AT_WORLD + timedelta(hours=1)),))
    assert positions_by_mirrormaker(read, offsets, Selection())[0].reread == 0, "drkit has read it on the source"
