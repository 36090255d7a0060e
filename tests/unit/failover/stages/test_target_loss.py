"""What a target no longer holds: counted, left to retention, or not known, of each log by itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from drkit.failover.context.live_log import HeldLog
from drkit.failover.context.state_machine import Facts, Loss, Mode
from drkit.failover.stages import target_loss as module
from drkit.failover.stages.target_loss import TargetLoss, held_by_target, target_loss, with_target_loss
from drkit.kafka.admin.logs.leader_epochs import EpochEnd, LogBatch
from drkit.kafka.client.purged_records import Missing
from drkit.lag.unmirrored_tail import SECONDS, UnmirroredTail
from drkit.model.errors import NotShown, Unreachable
from drkit.model.link_state import TopicState
from drkit.model.offsets import LastBatch, OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition

LINK = LinkId("primary", "dr")
AT = datetime(2026, 11, 29, tzinfo=UTC)
TP, OTHER_TP = TopicPartition("t", 0), TopicPartition("t", 1)
OURS, OTHERS = 7, 8
"""Checksums of batches."""
SAME = UnmirroredTail({}, {}, {})


def held(begin: int, end: int) -> HeldLog:
    """A log whose last batch was read."""
    return HeldLog(begin, end, LastBatch(0, end - 1, OURS))


@dataclass
class Cluster:
    """Partitions of topics that all have the id `T`: log starts and ends; `silent`: without a leader. Each offset below
    `other_from` ends a batch of ours, each from there on one of others, all in the same leader epoch."""

    logs: dict[str, tuple[int, int]]
    silent: tuple[str, ...] = ()
    topic_id: str = "T"
    gone: bool = False
    alias: str = "dr"
    other_from: int = 10_000
    policy: str = "delete"
    asked: list[TopicPartition] = field(default_factory=list)

    def topics(self, names: list[str]) -> dict[str, Any]:
        there = {name.partition(":")[0] for name in (*self.logs, *self.silent)}
        return {name: SimpleNamespace(partitions=2, topic_id=self.topic_id) for name in names if name in there}

    def start_offsets(self, tps: Iterable[TopicPartition], **more: Any) -> dict[TopicPartition, int]:
        return {tp: begin for tp, (begin, _) in self._logs(tps, **more).items()}

    def end_offsets(self, tps: Iterable[TopicPartition], **more: Any) -> dict[TopicPartition, int]:
        return {tp: end for tp, (_, end) in self._logs(tps, **more).items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        return {tp: EpochEnd(0, end) for tp, (_, end) in self._logs(epochs).items()}

    def batches_at(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogBatch | None]:
        self.asked += offsets
        return {
            tp: LogBatch(at, at, 0, OTHERS if at >= self.other_from else OURS) if begin <= at < end else None
            for tp, (begin, end) in self._logs(offsets).items()
            for at in (offsets[tp],)
        }

    def topic_configs(self, topics: set[str], **_: Any) -> dict[str, dict[str, str]]:
        return {topic: {"cleanup.policy": self.policy} for topic in topics}

    def _logs(
        self, tps: Iterable[TopicPartition], silent: dict[TopicPartition, str] | None = None, **_: Any
    ) -> dict[TopicPartition, tuple[int, int]]:
        if self.gone:
            raise Unreachable("primary is gone", remedy="")
        if silent is not None:
            silent.update({tp: "no leader" for tp in tps if str(tp) in self.silent})
        return {tp: self.logs[str(tp)] for tp in tps if str(tp) in self.logs}


@dataclass
class Store:
    """Source offsets are those of dr less 100; mirrored up to offset 1,000 there."""

    topic: str = "t"
    rows: list[OffsetMapping] = field(default_factory=lambda: [OffsetMapping("t", 0, 1, 0, 100)])

    def topic_states(self, _link: LinkId) -> dict[str, TopicState]:
        return {self.topic: TopicState(self.topic, self.topic, "S", "T", 1, 2, created_by_drkit=True)}

    def mappings_of(self, _link: LinkId, places: list[Any]) -> Iterable[list[OffsetMapping]]:
        return [self.rows for _ in places]

    def watermarks(self, _link: LinkId) -> dict[TopicPartition, Watermark]:
        return {TopicPartition(self.topic, 0): Watermark(self.topic, 0, 1, 900, 1000, 0, 900, 100, AT)}


@pytest.fixture(autouse=True)
def tail(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a comparison of the last records of both sides finds (`found`), and below which source offsets it was asked
    for."""
    told: dict[str, Any] = {"found": SAME, "asked": {}}

    def below(offsets: dict[TopicPartition, int], *_: Any, seconds: float, **__: Any) -> UnmirroredTail:
        assert seconds > SECONDS or not offsets, "the more there is to compare, the longer: a resume gets no further"
        told["asked"] |= offsets
        if isinstance(told["found"], Exception):
            raise told["found"]
        return told["found"] if offsets else SAME

    monkeypatch.setattr(module, "tail_below", below)
    return told


@pytest.fixture(autouse=True)
def purges(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Whether `retention` explains what is missing, and whether that was asked with the logs' sizes (`sized`)."""
    told: dict[str, Any] = {"retention": False, "sized": [], "raises": None, "unknown": {}, "by_size": set()}

    def purged(_source: Any, _target: Any, missing: Mapping[TopicPartition, Missing], *_: Any, **how: Any) -> Any:
        told["sized"].append(how["sized"])
        if told["raises"] is not None:
            raise told["raises"]
        if told["unknown"] or told["by_size"]:
            how["unknown"] |= told["unknown"]
            how["by_size"] |= told["by_size"]
            return {}
        return {} if told["retention"] else {tp: each.stretch for tp, each in missing.items()}

    monkeypatch.setattr(module, "find_purged", purged)
    return told


def context(dr: Cluster, primary: Cluster, logs: dict[str, HeldLog], store: Store | None = None) -> Any:
    clusters = {"dr": dr, "primary": primary}
    estate = SimpleNamespace(store=store or Store(), admin=lambda alias, **_: clusters[alias])
    link = SimpleNamespace(id=LINK, target_topic=lambda name: name, settings_policy=None)
    loss = Loss(0, 0.0, AT)
    facts = Facts(mode=Mode.PLANNED, held=logs, loss=loss)
    return SimpleNamespace(estate=estate, link=link, facts=facts, commit_begun=True, positions=())


@pytest.mark.parametrize(
    ("source", "lost"),
    [((0, 500), 50), ((30, 500), 20), ((50, 500), 0), ((200, 500), 0)],
    ids=["all of it", "some of it", "nothing of it", "less than dr"],
)
def test_a_beginning_that_is_gone_counts_as_far_as_the_source_has_it(source: tuple[int, int], lost: int) -> None:
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({"t:0": source}), {"t:0": held(100, 600)})
    assert target_loss(asked, asked.facts).lost == ({"t:0": lost} if lost else {})


def test_a_beginning_that_retention_removed_on_the_target_first_is_no_loss(purges: dict[str, Any]) -> None:
    purges["retention"] = True
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({"t:0": (0, 500)}), {"t:0": held(100, 600)})
    assert target_loss(asked, asked.facts) == TargetLoss()


@pytest.mark.parametrize("begun", [False, True])
def test_the_size_of_a_log_says_nothing_of_retention_once_clients_write_there(
    purges: dict[str, Any], begun: bool
) -> None:
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({"t:0": (0, 500)}), {"t:0": held(100, 600)})
    asked.commit_begun = begun
    target_loss(asked, asked.facts)
    assert purges["sized"] == [not begun]


def test_what_a_retention_by_size_may_have_removed_since_makes_the_loss_a_lower_bound(purges: dict[str, Any]) -> None:
    """Somebody may have deleted it; counted it would be a loss after each failover of such a topic."""
    purges["by_size"] = {TP}
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({"t:0": (0, 500)}), {"t:0": held(100, 600)})
    found = target_loss(asked, asked.facts)
    assert (found.lost, found.told, found.unknown) == ({}, [], []), "it stops no move"
    facts, said = with_target_loss(asked, asked.facts)
    assert facts.loss is not None
    assert (facts.loss.records, facts.loss.lower_bound, facts.loss.upper_bound) == (0, True, False)
    assert facts.loss.reason == (
        "t:0 (offsets 100 to 149 were removed): whether its retention by size did that isn't known, as clients write "
        "there"
    )
    assert facts.loss.reason in said


@pytest.mark.parametrize(
    ("source_end", "log", "start", "lost"),
    [(500, held(5000, 6000), 5200, 0), (900, held(600, 1200), 1100, 400), (500, held(400, 1200), 1100, 200)],
    ids=["all clients'", "behind what was mirrored", "behind the source's end"],
)
def test_clients_records_of_the_target_are_none_that_the_source_could_hold(
    source_end: int, log: HeldLog, start: int, lost: int
) -> None:
    asked = context(Cluster({"t:0": (start, 6000)}), Cluster({"t:0": (0, source_end)}), {"t:0": log})
    assert target_loss(asked, asked.facts).lost == ({"t:0": lost} if lost else {})


@pytest.mark.parametrize(
    ("topic", "committed", "lost"),
    [("app-sums-repartition", 150, 0), ("app-sums-repartition", 140, 50), ("app-orders", 150, 50)],
    ids=["read", "unread", "another topic"],
)
def test_what_a_streams_application_removed_of_its_repartition_topic_is_no_loss(
    topic: str, committed: int, lost: int
) -> None:
    """It deletes what it has read; no retention does."""
    tp = TopicPartition(topic, 0)
    asked = context(
        Cluster({str(tp): (150, 600)}), Cluster({str(tp): (0, 500)}), {str(tp): held(100, 600)}, Store(topic)
    )
    asked.positions = (SimpleNamespace(group="app"),)
    offsets = [SimpleNamespace(group="app", tp=tp, offset=committed)]
    asked.estate.groups = lambda _alias: SimpleNamespace(committed=lambda _groups: offsets)
    assert target_loss(asked, asked.facts).lost == ({str(tp): lost} if lost else {})


@pytest.mark.parametrize("replaced", [False, True], ids=["gone", "replaced"])
def test_a_beginning_that_is_gone_is_named_where_the_source_can_not_be_asked(replaced: bool) -> None:
    """No run stops in its close over that: each resume would stop there again."""
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({}, gone=True), {"t:0": held(100, 600)})
    if replaced:
        dr = asked.estate.admin("dr")

        def admin(alias: str, **_: Any) -> Cluster:
            if alias == "primary":
                raise NotShown("primary is another cluster now", remedy="")
            return dr

        asked.estate.admin = admin
    found = target_loss(asked, asked.facts)
    why = "primary is another cluster now" if replaced else "primary is gone"
    (unknown,) = found.unknown
    assert (found.lost, found.told) == ({}, [])
    assert unknown == (
        f"t:0 (offsets 100 to 149 were removed): whether primary has them, and retention kept them, isn't known ({why})"
    )
    loss = with_target_loss(asked, asked.facts)[0].loss
    assert loss is not None
    assert loss.lower_bound


@pytest.mark.parametrize(
    "how", [{"raises": Unreachable("no leader", remedy="")}, {"unknown": {TP: "no leader"}}], ids=["all", "one"]
)
def test_where_nobody_says_whether_retention_removed_a_beginning_all_that_the_source_has_counts_at_most(
    purges: dict[str, Any], how: dict[str, Any]
) -> None:
    purges |= how
    asked = context(Cluster({"t:0": (150, 600)}), Cluster({"t:0": (30, 500)}), {"t:0": held(100, 600)})
    found = target_loss(asked, asked.facts)
    assert (found.lost, found.at_most, found.unsure, found.unknown) == ({"t:0": 20}, True, 20, [])
    assert found.told == ["t:0 (offsets 100 to 149 were removed; whether retention did that isn't known: no leader)"]
    loss = with_target_loss(asked, asked.facts)[0].loss
    assert loss is not None
    assert (loss.records, loss.upper_bound, loss.lower_bound) == (20, True, False)


def test_a_log_that_nobody_answers_for_is_unknown_and_hides_no_loss_of_another() -> None:
    logs = {"t:0": held(0, 5), "t:1": held(0, 10)}
    asked = context(Cluster({"t:1": (7, 7)}, silent=("t:0",)), Cluster({"t:1": (0, 900)}), logs)
    found = target_loss(asked, asked.facts)
    assert found.lost == {"t:1": 3}
    assert found.unknown[0] == "what dr holds by now isn't known of t:0 (no leader)"


@pytest.mark.parametrize(
    ("dr", "told"),
    [
        (Cluster({"t:0": (100, 110)}, topic_id="U"), "t:0 (it is another topic now)"),
        (Cluster({}), "t:0 (it is gone)"),
        (Cluster({"t:0": (100, 104)}), "t:0 (offsets 104 to 109)"),
    ],
)
def test_what_is_gone_at_the_end_counts(dr: Cluster, told: str) -> None:
    asked = context(dr, Cluster({}), {"t:0": held(100, 110)})
    found = target_loss(asked, asked.facts)
    assert (found.told, sum(found.lost.values())) == ([told], 6 if "104 to 109" in told else 10)
    assert not found.unknown
    assert not found.at_most


@pytest.mark.parametrize("end", [110, 150], ids=["to its end", "beyond it"])
def test_a_log_that_was_set_back_and_has_grown_again_may_have_lost_all(end: int) -> None:
    dr = Cluster({"t:0": (100, end)}, other_from=104)
    asked = context(dr, Cluster({}), {"t:0": held(100, 110)})
    found = target_loss(asked, asked.facts)
    assert (found.lost, found.at_most, found.unknown) == ({"t:0": 10}, True, [])
    assert found.told == ["t:0 (offsets 100 to 109: it was set back, and has grown again)"]
    assert "dr has lost up to 10 offsets" in with_target_loss(asked, asked.facts)[1]


@pytest.mark.parametrize(
    ("log", "dr"),
    [
        (held(100, 110), Cluster({"t:0": (100, 110)}, other_from=109, policy="compact")),
        (HeldLog(100, 110), Cluster({"t:0": (100, 110)})),
        (held(100, 110), Cluster({"t:0": (100, 104)})),
    ],
    ids=["cleaner", "unread batch", "cut"],
)
class TestWhereNeitherEpochsNorTheLastBatchTell:
    """The last records of both sides are compared."""

    @pytest.fixture
    def asked(self, log: HeldLog, dr: Cluster) -> Any:
        return context(dr, Cluster({}), {"t:0": log})

    def test_the_same_records_show_that_it_is_the_same_log(self, asked: Any, dr: Cluster, tail: dict[str, Any]) -> None:
        found = target_loss(asked, asked.facts)
        end = dr.logs["t:0"][1] - 100  # on the source
        assert (tail["asked"], found.unknown) == ({TP: end}, [])
        assert sum(found.lost.values()) == 10 - end

    def test_other_records_count_from_the_last_one_that_is_the_same(self, asked: Any, tail: dict[str, Any]) -> None:
        tail["found"] = UnmirroredTail({TP: 3}, {TP: 2}, {})
        found = target_loss(asked, asked.facts)
        assert (found.lost, found.at_most, found.unknown) == ({"t:0": 8}, True, [])
        assert found.told[-1] == "t:0 (it holds other records than primary's from its offset 2 on)"

    @pytest.mark.parametrize(
        "result", [UnmirroredTail({}, {}, {TP: "primary is gone"}), Unreachable("primary is gone", remedy="")]
    )
    def test_what_can_not_be_read_is_unknown_with_the_reason(
        self, asked: Any, tail: dict[str, Any], result: Any
    ) -> None:
        tail["found"] = result
        (unknown,) = target_loss(asked, asked.facts).unknown
        assert "nothing shows that dr still holds what it held of t:0 (primary is gone)" in unknown
        facts, said = with_target_loss(asked, asked.facts)
        assert facts.loss is not None
        assert facts.loss.lower_bound
        assert unknown in (facts.loss.reason or "")
        assert unknown in said


@pytest.mark.parametrize("log", [HeldLog(100, 1010), HeldLog(50, 100)], ids=["clients' records", "no row"])
def test_records_that_were_never_mirrored_can_not_be_compared(log: HeldLog, tail: dict[str, Any]) -> None:
    asked = context(Cluster({"t:0": (0, 2000)}), Cluster({}), {"t:0": log})
    (unknown,) = target_loss(asked, asked.facts).unknown
    assert "t:0 (no mapping row says where all of that is on primary)" in unknown
    assert tail["asked"] == {}


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_log_whose_last_batch_retention_has_removed_is_no_other_one(policy: str, tail: dict[str, Any]) -> None:
    dr = Cluster({"t:0": (120, 150)}, other_from=104, policy=policy)
    asked = context(dr, Cluster({"t:0": (20, 500)}), {"t:0": held(100, 110)})
    found = target_loss(asked, asked.facts)
    assert (found.told, found.unknown, tail["asked"]) == ([], [], {})


def test_it_is_at_most_the_loss_of_the_run_with_the_reason() -> None:
    logs = {"t:0": held(100, 110), "t:1": held(0, 5)}
    asked = context(Cluster({"t:0": (100, 104)}, silent=("t:1",)), Cluster({}), logs)
    facts, said = with_target_loss(asked, asked.facts)
    assert facts.loss is not None
    assert (facts.loss.records, facts.loss.upper_bound, facts.loss.lower_bound) == (6, True, True)
    assert "dr has lost 6 offsets since the run counted what is missing there: t:0 (offsets 104 to 109)" in said
    assert said[2:] in (facts.loss.reason or "")


def test_a_target_that_has_all_changes_nothing() -> None:
    asked = context(Cluster({"t:0": (0, 40)}), Cluster({}), {"t:0": held(0, 10)})
    assert with_target_loss(asked, asked.facts) == (asked.facts, "")
    assert target_loss(asked, Facts(mode=Mode.PLANNED)).told == []


class TestWhatTheTargetHeld:
    """By two looks of a run: the first one saw `t:0` from 100 to 110."""

    BEFORE: Mapping[str, HeldLog] = {"t:0": held(100, 110)}

    def look(self, dr: Cluster, before: Mapping[str, HeldLog], *, silent: bool = False) -> dict[str, HeldLog]:
        views = {}
        for tp in (TP, OTHER_TP):
            start, end = dr.logs.get(str(tp), (None, None))
            views[tp] = SimpleNamespace(
                tp=tp,
                target_tp=tp,
                target_start=start,
                target_end=end,
                rows=[OffsetMapping("t", 0, 1, 0, 100)],
                target_silent="no leader" if silent else None,
            )
        return held_by_target(context(dr, Cluster({}), {}), SimpleNamespace(partitions=views), before)  # type: ignore[arg-type]  # what is read of it

    def test_a_log_is_held_from_behind_its_filler_with_its_last_batch(self) -> None:
        assert self.look(Cluster({"t:0": (0, 110), "t:1": (0, 100)}), {}) == self.BEFORE

    def test_what_was_seen_first_counts_and_is_not_read_again(self) -> None:
        """What was added since isn't the mirror's; what was removed since is in the loss."""
        dr = Cluster({"t:0": (104, 130), "t:1": (0, 105)}, other_from=104)
        assert self.look(dr, self.BEFORE) == {
            "t:0": held(104, 110),
            "t:1": HeldLog(100, 105, LastBatch(0, 104, OTHERS)),
        }
        assert dr.asked == [OTHER_TP]

    def test_of_what_is_left_of_a_log_that_was_cut_since_nothing_is_known(self) -> None:
        assert self.look(Cluster({"t:0": (0, 107)}), self.BEFORE) == {"t:0": HeldLog(100, 107)}

    @pytest.mark.parametrize("silent", [True, False])
    def test_a_log_that_is_gone_is_in_the_loss_but_one_without_an_answer_stays(self, silent: bool) -> None:
        assert self.look(Cluster({}), self.BEFORE, silent=silent) == (self.BEFORE if silent else {})

    def test_a_target_that_can_not_be_read_stops_no_move(self) -> None:
        assert self.look(Cluster({"t:0": (0, 110)}, gone=True), {}) == {"t:0": HeldLog(100, 110)}
