"""Which output belongs to which commit of offsets: told from three logs that are read at different speeds."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from drkit.failover.positions.transactional_positions import place_by_transactions
from drkit.kafka.groups.offsets_topic import OFFSETS_TOPIC
from drkit.kafka.protocol.transaction_log import CommitRecord, Status, TransactionEntry
from drkit.mirror.groups.transaction_tracker import Tracker
from drkit.model.clock import now
from drkit.model.groups import TransactionHistory
from drkit.model.offsets import GroupPosition
from drkit.model.topology import TopicPartition

OUT = [TopicPartition("out", 0), TopicPartition("out", 1)]
IN = TopicPartition("in", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 7)
STATE = TopicPartition("__transaction_state", 3)
PID = 11
AT = now()


class Source:
    """The logs of a cluster and one transactional producer; each log is a list of what is at its offsets."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[tuple]] = {tp: [] for tp in (*OUT, OFFSETS, STATE)}
        self.truth: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        self.producer_id = PID
        self.ongoing = False

    def _append(self, tp: TopicPartition, *what: object) -> int:
        self.logs[tp].append(what)
        return len(self.logs[tp]) - 1

    def state(self, status: Status, named: set[TopicPartition]) -> None:
        self.ongoing = status is Status.ONGOING
        self._append(STATE, "state", TransactionEntry("app", self.producer_id, status, frozenset(named)))

    def write(self, outputs: dict[TopicPartition, int], position: int) -> set[TopicPartition]:
        """Begin a transaction that consumed up to `position`."""
        named = {*outputs, OFFSETS}
        self.state(Status.ONGOING, named)
        wrote = {}
        for tp, count in outputs.items():
            places = [self._append(tp, "data", self.producer_id) for _ in range(count)]
            if places:
                wrote[tp] = (places[0], places[-1])
        self._append(OFFSETS, "offsets", self.producer_id, position)
        self.truth[position] = wrote
        return named

    def end(self, named: set[TopicPartition], *, commit: bool = True) -> None:
        self.state(Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT, named)
        self.mark(named, commit=commit)
        self.state(Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT, set())

    def mark(self, named: set[TopicPartition], *, commit: bool = True) -> None:
        for tp in sorted(named):
            self._append(tp, "marker", self.producer_id, commit)

    def transaction(self, outputs: dict[TopicPartition, int], position: int, *, commit: bool = True) -> None:
        self.end(self.write(outputs, position), commit=commit)


class Reader:
    """Reads a source into a tracker, each log at its own speed, an answer at a time."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tracker = Tracker(lambda topic: topic in {"in", "out"})
        self.at = {STATE: 0}
        self.begun: dict[TopicPartition, int] = {}
        self.answers = 0
        self.known: dict[int, object] = {}

    def read(self, *only: TopicPartition, most: int = 10**6) -> None:
        for tp in only or tuple(self.at):
            if tp not in self.at:
                continue
            log = self.source.logs[tp]
            for offset in range(self.at[tp], min(len(log), self.at[tp] + most)):
                self._take(tp, offset, *log[offset])
                self.at[tp] = offset + 1
        reached = frozenset(tp for tp in only or self.at if tp in self.at and self.at[tp] == len(self.source.logs[tp]))
        self.tracker.answered(reached, self.answers)
        self.answers += 1
        for each in self.tracker.news():
            self.known[each.number] = each

    def _take(self, tp: TopicPartition, offset: int, kind: str, *what: object) -> None:
        if kind == "state":
            self.tracker.state(offset, what[0])
        elif kind == "data":
            self.tracker.written(tp, what[0], offset, offset)
        elif kind == "offsets":
            records = [CommitRecord("billing", IN, what[1], "m")]
            self.tracker.committed(tp, what[0], offset, offset, records)
        else:
            self.tracker.ended(tp, what[0], offset, commit=what[1])

    def anchor(self) -> bool:
        """As the watch does, with nothing continuing at the source meanwhile."""
        done = True
        for name, (producer_id, tps) in self.tracker.unanchored().items():
            new = self.tracker.record(producer_id, [*tps, *OUT])
            quiet = (len(self.source.logs[STATE]),) * 2
            ends = {tp: len(self.source.logs[tp]) for tp in new}
            if self.tracker.anchor(name, ends, quiet, ongoing=self.source.ongoing):
                for tp in new:
                    self.at.setdefault(tp, ends[tp])
                self.begun |= {tp: end for tp, end in ends.items() if tp in OUT}
            else:
                self.tracker.forget(producer_id, new)
                done = False
        return done

    def history(self) -> TransactionHistory:
        """What the store would hold now."""
        read = {tp: offset for tp, offset in self.at.items() if tp in OUT}
        commits = tuple(each for _, each in sorted(self.known.items()))
        return TransactionHistory("w", AT, dict(self.begun), read, commits, {}, self.tracker.undecided())

    def commits(self) -> dict[int, object]:
        """What is known of each commit, by the position committed."""
        found = {}
        for each in self.known.values():
            if each.offsets:
                ((position, metadata),) = each.offsets.values()
                assert metadata == "m"
                found[position] = each.outputs
        return found


def watched() -> tuple[Source, Reader]:
    """A producer that is known and anchored, with nothing continuing."""
    source = Source()
    reader = Reader(source)
    source.transaction({OUT[0]: 1}, 1)
    reader.read()
    assert reader.anchor()
    source.transaction({OUT[0]: 1, OUT[1]: 1}, 2)  # its segments begin where the watch did: it is known as a whole only
    reader.read()
    return source, reader


def test_each_commit_has_the_output_of_its_transaction() -> None:
    source, reader = watched()
    source.transaction({OUT[0]: 2}, 3)
    source.transaction({OUT[1]: 3}, 4)
    source.transaction({OUT[0]: 1, OUT[1]: 1}, 5)
    reader.read()
    assert {p: dict(o) for p, o in reader.commits().items() if p > 2} == {p: source.truth[p] for p in (3, 4, 5)}


def test_a_group_whose_output_is_in_none_of_the_links_topics_is_named() -> None:
    """Whatever the link's own topics hold, they don't tell how much of its output is on the target."""
    source = Source()
    reader = Reader(source)
    reader.tracker = Tracker(lambda topic: topic == "in")
    for position in (1, 2):
        source.transaction({OUT[0]: 1}, position)
    reader.read(STATE)
    assert reader.tracker.unanchored() == {}
    assert reader.tracker.unseen() == {OFFSETS}
    reader.at[OFFSETS] = 0
    reader.read(OFFSETS)
    assert reader.tracker.elsewhere == {"billing": frozenset({"out"})}
    history = TransactionHistory("w", AT, elsewhere=reader.tracker.elsewhere)
    for group, known in (("billing", True), ("another", False)):
        place = place_by_transactions(history, GroupPosition(group, *IN, 2, "m", AT), {IN: 10})
        assert (place is not None) is known
        if place is not None:
            assert (place.offset, place.again) == (2, None)
            assert "to out, none of this link's topics" in (place.reason or "")


def test_an_aborted_transaction_commits_nothing_and_takes_no_place() -> None:
    source, reader = watched()
    source.transaction({OUT[0]: 2}, 3, commit=False)
    source.transaction({OUT[0]: 2}, 4)
    reader.read()
    assert 3 not in reader.commits()
    assert dict(reader.commits()[4]) == source.truth[4]


def test_a_decided_transaction_is_known_before_its_markers() -> None:
    source, reader = watched()
    named = source.write({OUT[0]: 2, OUT[1]: 1}, 3)
    reader.read()
    assert 3 not in reader.commits(), "it is open"
    source.state(Status.PREPARE_COMMIT, named)
    reader.read()
    assert dict(reader.commits()[3]) == source.truth[3]


def test_what_was_not_read_after_the_decision_is_not_claimed() -> None:
    source, reader = watched()
    named = source.write({OUT[0]: 2, OUT[1]: 1}, 3)
    reader.read(OUT[0], OUT[1], most=0)
    source.state(Status.PREPARE_COMMIT, named)
    reader.read(STATE)
    assert 3 not in reader.commits()
    reader.read(OFFSETS)
    assert reader.commits()[3] is None, "the outputs were not read yet"
    reader.read()
    assert dict(reader.commits()[3]) == source.truth[3]


def test_a_marker_twice_makes_nothing_certain_that_is_not() -> None:
    source, reader = watched()
    source.transaction({OUT[0]: 1, OUT[1]: 1}, 3)
    source.mark({OUT[0]})  # a coordinator that took over wrote it again
    source.transaction({OUT[0]: 2, OUT[1]: 1}, 4)
    source.transaction({OUT[0]: 1, OUT[1]: 1}, 5)
    reader.read()
    assert all(not claims_less(source, reader, position) for position in reader.commits())
    assert reader.anchor()
    source.transaction({OUT[0]: 1}, 6)
    source.transaction({OUT[0]: 4}, 7)
    reader.read()
    assert dict(reader.commits()[7]) == source.truth[7]
    assert all(not claims_less(source, reader, position) for position in reader.commits())
    assert all(each.outputs is not None for each in reader.known.values()), "all is over by the new anchor"


def claims_less(source: Source, reader: Reader, position: int) -> bool:
    """Whether a transaction would be held to be on the target, or to be absent there, when it isn't so."""
    outputs = reader.commits()[position]
    if outputs is None:
        return False
    for tp, (first, last) in source.truth[position].items():
        if tp not in outputs or outputs[tp][1] < last or outputs[tp][0] > first:
            return True
    return False


@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_read_when_nothing_wrong_is_claimed(seed: int) -> None:
    """Random transactions, aborts, repeated markers, read in random bits, anchored at random moments."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    source = Source()
    reader = Reader(source)
    for position in range(1, 41):
        outputs = {tp: chance.randint(1, 3) for tp in OUT if chance.random() < 0.7}
        commit = chance.random() < 0.8
        named = source.write(outputs, position)
        read_some(chance, reader)
        source.state(Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT, named)
        read_some(chance, reader)
        source.mark(named, commit=commit)
        if seed % 2 and chance.random() < 0.1:
            source.mark({chance.choice(sorted(named))}, commit=commit)
        read_some(chance, reader)
        source.state(Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT, set())
        read_some(chance, reader)
        if chance.random() < 0.3:
            reader.anchor()
        if not commit:
            del source.truth[position]
    reader.read()
    reader.anchor()
    reader.read()
    commits = reader.commits()
    assert len(commits) > 5, "something is known"
    assert set(commits) <= set(source.truth), "no aborted transaction has committed anything"
    assert not [each for each in commits if claims_less(source, reader, each)]
    assert list(commits) == sorted(commits), "in order"


class Mirror:
    """What the target holds: of each output a beginning that a read_committed reader could have come to."""

    def __init__(self, source: Source, chance: random.Random) -> None:
        self.source = source
        self.chance = chance
        self.through = dict.fromkeys(OUT, 0)

    def move(self, unmarked: set[TopicPartition], open_from: dict[TopicPartition, int]) -> None:
        """Go on, up to the last stable offset: where a transaction's records begin that has no marker there yet."""
        for tp in OUT:
            stable = open_from[tp] if tp in unmarked else len(self.source.logs[tp])
            self.through[tp] = self.chance.randint(self.through[tp], stable)


def check_place(source: Source, reader: Reader, mirror: Mirror, committed: list[int], counts: Counter[str]) -> None:
    """What a failover would do now: never past missing output, and exact where it says so."""
    captured = GroupPosition("billing", *IN, mirror.chance.choice(committed), "", AT)
    place = place_by_transactions(reader.history(), captured, mirror.through)
    if place is None or place.again is None:
        counts["unknown"] += 1
        return
    counts["exact" if place.again == 0 else "again"] += 1
    there = {
        position: [mirror.through[tp] > last for tp, (_, last) in source.truth[position].items()]
        for position in committed
    }
    some = {
        position: [mirror.through[tp] > first for tp, (first, _) in source.truth[position].items()]
        for position in committed
    }
    assert all(all(there[position]) for position in committed if position <= place.offset), "output is missing"
    assert sum(any(some[position]) for position in committed if position > place.offset) == place.again


def read_mostly(chance: random.Random, reader: Reader) -> None:
    """A watch that is mostly prompt, and sometimes lags behind with some of the logs."""
    prompt = chance.random() < 0.8
    for tp in list(reader.at):
        if prompt:
            reader.read(tp)
        elif chance.random() < 0.5:
            reader.read(tp, most=chance.randint(1, 4))


@pytest.mark.parametrize("seed", range(12))
def test_a_failover_at_any_moment_says_what_is_so(seed: int) -> None:
    """Source, mirror and watch continue at random; at random moments the source is gone."""
    chance = random.Random(1_000 + seed)  # noqa: S311 - a test's dice
    source = Source()
    reader, mirror = Reader(source), Mirror(source, chance)
    committed: list[int] = [0]
    source.truth[0] = {}
    counts: Counter[str] = Counter()

    def go_on(unmarked: set[TopicPartition], begun: dict[TopicPartition, int]) -> None:
        read_mostly(chance, reader)
        mirror.move(unmarked, begun)
        if reader.begun:
            check_place(source, reader, mirror, committed, counts)

    for position in range(1, 81):
        outputs = {tp: chance.randint(1, 3) for tp in OUT if chance.random() < 0.8}
        commit = chance.random() < 0.85
        begun = {tp: len(source.logs[tp]) for tp in OUT}
        named = source.write(outputs, position)
        truth = source.truth.pop(position)
        go_on(set(outputs) | {OFFSETS}, begun)
        source.state(Status.PREPARE_COMMIT if commit else Status.PREPARE_ABORT, named)
        if commit:
            source.truth[position] = truth
            committed.append(position)
        go_on(set(outputs) | {OFFSETS}, begun)
        unmarked = set(outputs)
        for tp in chance.sample(sorted(named), len(named)):
            again = seed % 3 == 0 and chance.random() < 0.05  # a coordinator that took over
            for _ in range(1 + again):
                source.mark({tp}, commit=commit)
            unmarked.discard(tp)
            go_on(unmarked | {OFFSETS}, begun)
        source.state(Status.COMPLETE_COMMIT if commit else Status.COMPLETE_ABORT, set())
        go_on(set(), begun)
        if chance.random() < 0.2:
            reader.anchor()
    assert counts["exact"] > 20, counts
    assert counts["again"] > 5, counts


def read_some(chance: random.Random, reader: Reader) -> None:
    for tp in list(reader.at):
        if chance.random() < 0.5:
            reader.read(tp, most=chance.randint(1, 6))
        for each in reader.commits():
            assert not claims_less(reader.source, reader, each) if each in reader.source.truth else True
