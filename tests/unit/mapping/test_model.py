"""Translate, resume and invert against a model that keeps every record (tests/support/links/mirror_model.py)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from drkit.mapping import ResumeKind, invert_mappings, invert_watermark, resume_point
from drkit.model.offsets import Certainty
from tests.support.links.mirror_model import MirroredPartition, translate_rows

KINDS = st.lists(st.booleans() | st.just(True), min_size=1, max_size=12)  # mostly records, stretches of holes
FEW = st.integers(min_value=0, max_value=6)
SOME = st.integers(min_value=1, max_value=8)


class MirrorMachine(RuleBasedStateMachine):
    """Any order of traffic, mirroring, crashes, retention, compaction and recreation."""

    partition: MirroredPartition

    @initialize(source_start=st.integers(0, 8), target_base=st.integers(0, 8))
    def begin(self, source_start: int, target_base: int) -> None:
        self.partition = MirroredPartition(source_start, target_base, epoch=1)

    @rule(kinds=KINDS)
    def append(self, kinds: list[bool]) -> None:
        self.partition.append(kinds)

    @rule(count=SOME)
    def mirror(self, count: int) -> None:
        self.partition.mirror(count)

    @rule(choice=FEW)
    def acknowledge(self, choice: int) -> None:
        self.partition.acknowledge(choice)

    @rule()
    def see_holes(self) -> None:
        self.partition.see_holes()

    @rule(count=SOME)
    def target_markers(self, count: int) -> None:
        self.partition.use_target_offsets(count)

    @rule()
    def late_marker(self) -> None:
        self.partition.late_marker()

    @rule(offset=st.integers(0, 60))
    def compact(self, offset: int) -> None:
        self.partition.compact(offset)

    @rule(count=SOME)
    def retain_source(self, count: int) -> None:
        self.partition.retain_source(count)

    @rule(count=SOME)
    def retain_target(self, count: int) -> None:
        self.partition.retain_target(count)

    @rule(count=SOME, landing=FEW, compacted=st.lists(st.integers(0, 60), max_size=6))
    def crash_while_mirroring(self, count: int, landing: int, compacted: list[int]) -> None:
        self.partition.mirror(count, landing=landing)
        self._come_back(compacted)

    @rule(count=SOME, landing=FEW)
    def crash_while_marking(self, count: int, landing: int) -> None:
        self.partition.use_target_offsets(count, landing=landing)
        self._come_back([])

    @rule(lost=SOME, compacted=st.lists(st.integers(0, 60), max_size=6))
    def target_loses_data(self, lost: int, compacted: list[int]) -> None:
        self.partition.lose(lost)
        for offset in compacted:
            self.partition.compact(offset)
        self.partition.resume(stop_before_superseding=True)
        self.partition.check_translations()
        self.partition.resume()

    @rule(source_start=FEW)
    def source_is_recreated(self, source_start: int) -> None:
        old = self.partition
        self.partition = MirroredPartition(
            source_start,
            old.log_end,
            epoch=old.epoch + 1,
            target_start=old.target_start,
            former=[*old.former, old],
        )

    @rule(times=st.integers(1, 2))
    def source_is_accepted_as_a_new_topic(self, times: int) -> None:
        for _ in range(times):
            self.partition = self.partition.accepted_anew()

    @invariant()
    def translations_hold(self) -> None:
        self.partition.check_translations()

    def _come_back(self, compacted: list[int]) -> None:
        self.partition.check_translations()  # rows are ahead of the log now
        for offset in compacted:
            self.partition.compact(offset)
        self.partition.resume(stop_before_superseding=True)
        self.partition.check_translations()  # as a second crash would leave it
        self.partition.resume()


class FailbackMachine(RuleBasedStateMachine):
    """A link's way back, turned round at any caught-up moment and used in the new direction."""

    back: MirroredPartition

    @initialize(source_start=st.integers(0, 8), target_base=st.integers(0, 8))
    def begin(self, source_start: int, target_base: int) -> None:
        self.back = MirroredPartition(source_start, target_base)

    @rule(kinds=KINDS, count=SOME, landing=FEW)
    def traffic_and_a_crash(self, kinds: list[bool], count: int, landing: int) -> None:
        self.back.append(kinds)
        self.back.mirror(count, landing=landing)
        self.back.resume()

    @rule(count=SOME, landing=FEW)
    def target_markers(self, count: int, landing: int) -> None:
        self.back.use_target_offsets(count, landing=landing)
        self.back.resume()

    @rule(offset=st.integers(0, 60))
    def compact(self, offset: int) -> None:
        self.back.compact(offset)

    @rule(count=SOME)
    def retain(self, count: int) -> None:
        self.back.retain_source(count)
        self.back.retain_target(count)

    @rule(kinds=KINDS, landing=FEW, planned_markers=FEW)
    def turned_round(self, kinds: list[bool], landing: int, planned_markers: int) -> None:
        """Catch up, invert, check both ways, and continue mirroring in the new direction."""
        back = self.back
        back.mirror(len(back.slots))
        back.see_holes()
        back.acknowledge(-1)
        if planned_markers:
            back.use_target_offsets(planned_markers, landing=0)  # its row stays ahead of the log
        assert back.watermark is not None
        rows = invert_mappings(back.rows, back.watermark, epoch=7)
        mark = invert_watermark(back.watermark, epoch=7)
        dr_of = {primary: dr for dr, primary in back.placed.items() if dr >= back.source_start}

        for dr in range(back.source_start, back.source_end + 1):
            there = translate_rows(back.rows, back.watermark, dr)
            if there.certainty is Certainty.EXACT and there.target_offset is not None:
                again = translate_rows(rows, mark, there.target_offset)
                assert again.certainty is Certainty.EXACT or "retention or DeleteRecords" in (again.reason or "")
                unread = min((d for d in dr_of.values() if d >= dr), default=None)
                read = min((d for d in dr_of.values() if d >= (again.target_offset or 0)), default=None)
                assert read == unread, "a position that went there and back reads on at another record"
        for known in (mark, None):  # the rows alone say it too: a crash may come before the watermark is put
            point = resume_point(rows, known, back.source_end, source_start=back.target_start, source_end=back.log_end)
            assert (point.kind, point.source_offset) == (ResumeKind.CONTINUE, back.log_end), "nothing is left to copy"

        forward = MirroredPartition(back.target_start, back.source_end, epoch=7, target_start=back.source_start)
        forward.first_offset = back.target_start
        forward.slots = [offset in dr_of for offset in range(back.target_start, back.log_end)]
        forward.placed = {primary: dr for primary, dr in dr_of.items() if primary >= back.target_start}
        forward.durable = {row.source_offset: row.target_offset for row in rows}
        forward.watermark = mark
        forward.resume()
        forward.append(kinds)
        forward.check_translations()
        forward.mirror(len(kinds), landing=landing)
        forward.resume()
        forward.mirror(len(kinds))
        forward.acknowledge(landing)
        forward.check_translations()
        back.resume()


COMMON = settings(max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])

TestMirror = MirrorMachine.TestCase
TestMirror.settings = COMMON
TestFailback = FailbackMachine.TestCase
TestFailback.settings = COMMON
