"""Filling a store from a copy or from the logs: whenever it is interrupted, nothing goes by what is there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from types import SimpleNamespace

import pytest

from drkit.cli.verbs.setup.store import _empty_store
from drkit.kafka.admin.topic_requests import TopicInfo
from drkit.kafka.client.record_probe import LogPosition, ProbedRecord
from drkit.mapping.store_translator import Translator
from drkit.model.clock import now
from drkit.model.errors import Refused, Unreachable
from drkit.model.link_state import RECORDS_UNMAPPED, RECOVERED_FROM_LOGS, Direction, LinkControl, TopicState
from drkit.model.offsets import Certainty, OffsetMapping, Watermark
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.state_topic.from_logs import fill_from_logs
from drkit.state_topic.guard import RECOVERY, RESTORING, STATE, check_may_begin, check_recovered
from drkit.state_topic.link_copy import LinkCopy, ProvenPartition
from drkit.state_topic.recovery import fill, has_data
from drkit.store import open_store
from tests.support.links.cut_store import CutOff

LINK = Link(LinkId("primary", "dr"), topics=("pl",))
PARTITIONS = 3


class Target:
    """A cluster with one topic, without a broker: the same records in each partition, by offset."""

    def __init__(self, records: Mapping[int, int] | None = None, end: int = 50, unread: Collection[int] = ()) -> None:
        self._records = dict.fromkeys(range(end), 1) if records is None else records
        self._end = end
        self._unread = unread

    def topics(self, names=("pl",)):
        return {name: TopicInfo(name, f"{name}-id", PARTITIONS, 1, False) for name in names if name == "pl"}

    def start_offsets(self, tps, *, partial):
        assert partial
        return dict.fromkeys(tps, 0)

    def log_ends(self, tps, *, partial):
        assert partial
        return dict.fromkeys(tps, self._end)

    def probe_records(self, places, *, seconds):
        """The first record at or after each offset, as a broker answers."""
        assert seconds
        return {place: self._probed(place) for place in places}

    def _probed(self, place: LogPosition) -> ProbedRecord:
        if place.tp.partition in self._unread:
            return ProbedRecord(reason="not read in time", late=True)
        there = [offset for offset in sorted(self._records) if offset >= place.offset]
        return ProbedRecord(there[0], 1_000, self._records[there[0]]) if there else ProbedRecord()


def test_a_recovery_from_the_logs_is_over_only_once_each_partition_is_said_to_be_conservative(tmp_path):
    writes, over = 0, False
    while not over:
        with closing(open_store(f"sqlite:///{tmp_path}/{writes}.db")) as store:
            try:
                fill_from_logs(CutOff(store, writes), LINK, Target(), None)
                over = True
            except Unreachable:
                assert not has_data(store, LINK), f"after {writes} writes the same command would be refused"
                fill_from_logs(store, LINK, Target(), None)
            doubts = {
                (each.topic, each.partition) for each in store.problems(LINK.id) if each.kind == RECOVERED_FROM_LOGS
            }
            assert doubts == {TopicPartition("pl", number) for number in range(PARTITIONS)}, writes
        writes += 1
    assert writes > PARTITIONS


def test_no_mirror_begins_with_a_part_of_the_link(tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path}/drkit.db")) as store:
        with pytest.raises(Unreachable):
            fill_from_logs(CutOff(store, 3), LINK, Target(), None)
        for check in (
            lambda: check_recovered(store, LINK),
            lambda: check_may_begin(LINK, store, Target(), None, lambda: "source-id"),
        ):
            with pytest.raises(Refused, match="interrupted"):
                check()


@pytest.mark.parametrize(("direction", "accepts"), [(Direction.ACTIVE, True), (Direction.SEALED, False)])
def test_of_a_link_that_was_failed_over_no_topic_is_to_be_accepted(tmp_path, direction, accepts):
    copy = LinkCopy("", control=LinkControl(LINK.id, direction, 3, now()))
    copy.topics["pl"] = TopicState("pl", "pl", "s", "pl-id", 1, PARTITIONS, created_by_drkit=True)
    with closing(open_store(f"sqlite:///{tmp_path}/drkit.db")) as store:
        fill(store, LINK, copy, Target())
        unmapped = [each for each in store.problems(LINK.id) if each.kind == RECORDS_UNMAPPED]
    assert [each.partition for each in unmapped] == list(range(PARTITIONS))
    assert {("--accept-recreated" in each.remedy, "by hand" in each.remedy) for each in unmapped} == {(accepts, True)}


def test_a_recovery_does_not_begin_over_a_part_of_a_backup(tmp_path):
    """Rows of the backup would stand among those that the copy proves."""
    with closing(open_store(f"sqlite:///{tmp_path}/drkit.db")) as store:
        store.put_notes(LINK.id, RECOVERY, {STATE: RESTORING})
        run = SimpleNamespace(store=lambda **_: store)
        for check in (lambda: check_recovered(store, LINK), lambda: _empty_store(run, [LINK])):
            with pytest.raises(Refused, match="the restore of the store was interrupted") as refused:
                check()
            assert "drkit store restore --from FILE again" in refused.value.remedy


def test_a_recovery_of_several_links_that_was_cut_goes_on_with_those_that_are_left(tmp_path):
    left = Link(LinkId("second", "dr"), topics=("pl",))
    said: list[str] = []
    with closing(open_store(f"sqlite:///{tmp_path}/drkit.db")) as store:
        fill_from_logs(store, LINK, Target(), None)
        log = SimpleNamespace(print=lambda text, **_: said.append(text))
        run = SimpleNamespace(store=lambda **_: store, writer=SimpleNamespace(log=log))
        assert _empty_store(run, [LINK, left]) == (store, [left])
        assert "primary->dr stays as it is" in said[0]
        with pytest.raises(Refused, match="the store holds data of primary->dr"):
            _empty_store(run, [LINK])


def test_what_the_sources_cleaner_removed_or_what_is_not_read_is_no_difference(tmp_path):
    """Cleaners of both sides work apart. What differs is another record at the same offset."""
    compacted = Target({offset: 1 for offset in range(50) if offset in {3, 49}})
    cases = {
        "cleaned": (Target(), compacted, [], set()),
        "all removed": (Target(), Target({}), [], set(range(PARTITIONS))),
        "late": (Target(), Target(unread=[1]), [], {1}),
        "late on dr": (Target(unread=[2]), Target(), [], {2}),
        "another record": (Target(), Target({49: 2}), list(range(PARTITIONS)), set()),
    }
    for name, (target, source, left_out, uncompared) in cases.items():
        with closing(open_store(f"sqlite:///{tmp_path}/{name}.db")) as store:
            found = fill_from_logs(store, LINK, target, source)
            problems = store.problems(LINK.id)
        assert [each.partition for each in found.left_out] == left_out, name
        said = {each.partition for each in problems if "no record of it could be compared with primary" in each.reason}
        assert said == uncompared, name
        assert {each.kind for each in problems} == ({RECORDS_UNMAPPED} if left_out else {RECOVERED_FROM_LOGS}), name


@pytest.mark.parametrize(("epoch", "begins"), [(2, 40), (2, 0), (1, 40)])
def test_what_the_target_has_from_before_an_accepted_topic_is_not_forgotten_with_the_store(tmp_path, epoch, begins):
    """The copy has rows of the present epoch only: a group ahead of its part was put behind what dr has from the first
    time, and it had not read that."""
    copy, tp = LinkCopy(""), TopicPartition("pl", 0)
    copy.topics["pl"] = TopicState("pl", "pl", "s", "pl-id", epoch, 1, created_by_drkit=True)
    mark = Watermark(*tp, epoch, 10, begins + 10, 0, 60, 0, now())
    copy.partitions[tp] = ProvenPartition(mark, [OffsetMapping(*tp, epoch, 0, begins)])
    with closing(open_store(f"sqlite:///{tmp_path}/drkit.db")) as store:
        fill(store, LINK, copy, Target(end=begins + 10))
        translator = Translator(store, LINK.id)
        ahead, within, all_read = (translator.translate(tp, offset) for offset in (30, 5, 60))
    assert (within.certainty, within.target_offset) == (Certainty.EXACT, begins + 5)
    assert (all_read.certainty, all_read.target_offset) == (Certainty.CONSERVATIVE, begins + 10)
    if epoch == 1 or begins == 0:
        assert (ahead.certainty, ahead.target_offset) == (Certainty.CONSERVATIVE, begins + 10)
    else:
        assert ahead.target_offset is None
        assert ahead.reason is not None
        assert "what the target holds from before, below 40, may have records" in ahead.reason
