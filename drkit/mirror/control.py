"""The control state of a link, which its mirror follows (run, pause some or all topics, stop), and the
decisions that an operator takes with `drkit link` (pause, resume, acknowledge, accept a recreated topic).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.lag.returned_records import given_up_problem
from drkit.mapping.unmapped_records import rows_of_unmapped
from drkit.model.clock import now
from drkit.model.errors import ConfigError, DrkitError, Refused
from drkit.model.link_state import (
    ACKNOWLEDGED,
    ACL_REMOVAL_HELD,
    AUDIT_DEVIATION,
    COPY_CUT,
    DELETION_HELD,
    FOREIGN_WRITER,
    RECORDS_GIVEN_UP,
    RECORDS_MISPLACED,
    RECORDS_RETURNED,
    RECORDS_UNMAPPED,
    RECOVERED_FROM_LOGS,
    RECREATED,
    ROWS_UNPROVEN,
    SETTINGS_HELD,
    SOURCE_GAP,
    SOURCE_TRUNCATED,
    STORE_RECOVERED,
    TARGET_PURGED,
    Direction,
    LinkControl,
    Problem,
    TopicState,
)
from drkit.model.offsets import OffsetMapping
from drkit.model.runs import serve_again
from drkit.model.topics.removing import HeldSettings
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.model.wording import and_more
from drkit.store.api import LinkStore, Store
from drkit.store.link_notes import (
    accept_purge,
    accept_source_gap,
    check_target_cluster,
    give_up_never_mirrored,
    note_clusters,
    source_gaps,
)

_TRIES = 10
OF_ALL_TOPICS = (ROWS_UNPROVEN, SETTINGS_HELD)
"""Kinds that may be acknowledged of every topic at once: one reason is behind all of them (what is known of the store,
a default that was rolled out)."""
_BY_NAME = frozenset(
    {
        *(DELETION_HELD, RECORDS_MISPLACED, RECORDS_RETURNED, RECOVERED_FROM_LOGS, SETTINGS_HELD, SOURCE_GAP),
        *(ROWS_UNPROVEN, TARGET_PURGED),
    }
)
"""Acknowledging one of these needs the topic's name: it deletes a topic, has records of it removed, gives up records,
or makes positions exact that lie below duplicated records, or that nothing but the configuration or an operator vouches
for."""

_ALSO_FAILED_OVER = frozenset({ACL_REMOVAL_HELD, AUDIT_DEVIATION, COPY_CUT, ROWS_UNPROVEN, SETTINGS_HELD})
"""What can be acknowledged of a link that was failed over, too."""

_NOT_RETRIED = RECREATED | {FOREIGN_WRITER, RECORDS_UNMAPPED, SOURCE_TRUNCATED}
"""Until the topic is accepted as a new one: retention may have removed what showed that both sides differ, and nothing
shows whose unmapped records are."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The current control state. `refusal`: why the mirror must stop, or None; `reason`: why it is paused."""

    paused: bool = False
    paused_topics: frozenset[str] = frozenset()
    reason: str = ""
    refusal: Refused | None = None

    def holds(self, topic: str) -> bool:
        """Whether this topic is paused."""
        return self.paused or topic in self.paused_topics


def link_to_run(store: LinkStore, configured: Link) -> Link:
    """The direction in which a configured link flows now: forward, or its way back while it is reversed."""
    control = store.link_control(configured.id)
    if control is not None and control.direction is Direction.REVERSED:
        return configured.reversed()
    return configured


def read_orders(store: LinkStore, link: Link) -> Orders:
    """The control state of `link`; for a way back, also that of the link that it reverses."""
    own = store.link_control(link.id)
    if own is not None and not own.direction.serves_source:
        return Orders(refusal=_refusal(link, own))
    if link.inverse:
        there = store.link_control(link.id.reversed())
        if there is None or there.direction.serves_source:
            return Orders(refusal=_loop(link))
    if own is None:
        return Orders()
    return Orders(own.direction is Direction.PAUSED, own.paused_topics, own.reason)


def check_not_held(link: Link, orders: Orders) -> None:
    """Raise `Refused` where the link or a topic is paused: it can't catch up then."""
    if orders.paused or orders.paused_topics:
        what = "the link" if orders.paused else f"topic {min(orders.paused_topics)}"
        raise Refused(
            f"link {link.id} can't catch up: {what} is paused", remedy=f"Run `drkit link resume '{link.id}'` first"
        )


def _refusal(link: Link, control: LinkControl) -> Refused:
    by = f" by run {control.run}" if control.run else ""
    why = f" ({control.reason})" if control.reason else ""
    if control.direction is Direction.REVERSED:
        return Refused(
            f"link {link.id} is reversed{by}{why}",
            meaning=f"Its data flows the other way now: {link.id.reversed()}",
            remedy="Restart `drkit mirror`: it then runs the way back, which `drkit failback` ends",
        )
    return Refused(
        f"link {link.id} is sealed{by}{why}",
        meaning=f"{link.id.source} was failed away from; mirroring it would overwrite what {link.id.target} holds now",
        remedy=f"{serve_again(link) if link.alters else 'Bring it back with `drkit failback`'}; `drkit runs` shows the "
        "run that sealed it",
    )


def _loop(link: Link) -> Refused:
    return Refused(
        f"link {link.id} is the way back of {link.id.reversed()}, which is not sealed or reversed",
        meaning="Mirroring in both directions would circulate every record forever",
        remedy=f"Fail over or fail back first; {link.id.reversed()} stops then",
    )


# -- decisions of an operator ----------------------------------------------------------------------


def pause(store: LinkStore, link: Link, topic: str | None = None, *, reason: str = "") -> LinkControl:
    """Pause a link, or one topic of it; idempotent.

    Raises:
        ConfigError: the link doesn't cover the topic.
        Refused: the link is sealed or reversed.
    """
    _check_covered(link, topic)

    def held(control: LinkControl) -> LinkControl:
        if topic is not None:
            return replace(control, paused_topics=control.paused_topics | {topic})
        return replace(control, direction=Direction.PAUSED, reason=reason)

    return _change(store, link, held)


def resume_link(store: LinkStore, link: Link, topic: str | None = None) -> tuple[LinkControl, int]:
    """Resume a link, or one topic of it; retry partitions that a problem halts.

    Clears the problems that halt something: the mirror finds them again where they persist. Those that must be accepted
    or acknowledged stay: going on doesn't mean that an operator gives up records. Returns the decision and the number
    of cleared problems.

    Raises:
        ConfigError: the link doesn't cover the topic.
        Refused: the link is sealed or reversed, or a topic is named while the whole link is paused.
    """
    _check_covered(link, topic)

    def released(control: LinkControl) -> LinkControl:
        if topic is None:
            return replace(control, direction=Direction.ACTIVE, reason="", paused_topics=frozenset())
        _check_not_paused(control)
        return replace(control, paused_topics=control.paused_topics - {topic})

    control = _change(store, link, released)
    retried = [
        p for p in store.problems(link.id) if topic in {None, p.topic} and p.halted and p.kind not in _NOT_RETRIED
    ]
    for problem in retried:
        store.clear_problem(link.id, problem)
    return control, len(retried)


def acknowledge(
    store: Store,
    link: Link,
    kind: str,
    topic: str | None = None,
    *,
    all_topics: bool = False,
    compacted: bool = False,
) -> tuple[LinkControl, list[Problem]]:
    """An operator has read the problems of this kind, and goes on as they are: records that they name as missing count
    as given up. Returns the control state and the problems that are cleared; each is told again where more is lost.

    Of a link that was failed over, what asks for no decision about its mirroring can be acknowledged: it is cleared,
    and nothing is removed on the target, which is its clients' now.

    `all_topics`: one of `OF_ALL_TOPICS` is acknowledged of every topic that has it; other kinds that need a topic's
    name need it all the same.

    Raises:
        ConfigError: the link doesn't cover the topic.
        Refused: the link is sealed or reversed; there is no such problem; the kind isn't one to acknowledge; or it
            needs the topic's name.
    """
    _check_covered(link, topic)
    control = _control(store, link)
    failed_over = not control.direction.serves_source
    if kind not in _ALSO_FAILED_OVER:
        _check_serves_source(link, control)
    known = store.problems(link.id)
    found = [problem for problem in known if problem.kind == kind and topic in {None, problem.topic}]
    if not found:
        kinds = sorted({problem.kind for problem in known if topic in {None, problem.topic}})
        there = f"{topic or link.id} has {and_more(kinds)} on record" if kinds else "Nothing is on record there"
        raise Refused(
            f"no problem {kind} of {topic or link.id} is on record",
            remedy=f"{there}. What status sees while no mirror runs can be acknowledged once `drkit "
            f"mirror --link '{link.id}'` has recorded it",
        )
    topics = sorted({problem.topic for problem in found})
    if kind in RECREATED:
        raise Refused(
            f"{kind} can't be acknowledged: nothing of {and_more(topics)} is mirrored until the new topic is accepted",
            remedy=f"`drkit link resume '{link.id}' --topic {topics[0]} --accept-recreated` accepts it",
        )
    if kind == RECORDS_GIVEN_UP:
        raise Refused(
            f"{kind} says what was acknowledged, and how positions in it are translated: nothing is left to decide",
            remedy=found[0].remedy,
        )
    if kind == STORE_RECOVERED:
        raise Refused(
            f"{kind} can't be acknowledged", remedy="`drkit mirror` clears it, once it has compared both clusters"
        )
    if kind != SOURCE_GAP and any(problem.halted for problem in found):
        retry = f"; `drkit link resume '{link.id}' --topic {topics[0]}` retries at once"
        raise Refused(
            f"{kind} can't be acknowledged: {and_more(topics)} can't go on as long as its cause is there",
            remedy=f"{found[0].remedy}{'' if kind in _NOT_RETRIED else retry}",
        )
    if topic is None and kind in _BY_NAME and not (all_topics and kind in OF_ALL_TOPICS):
        every = " (or --all-topics, for each of them)" if kind in OF_ALL_TOPICS else ""
        raise Refused(
            f"{kind} is acknowledged for one topic at a time: it concerns {and_more(topics)}",
            remedy=f"Name it: `drkit link acknowledge '{link.id}' {kind} --topic {topics[0]}`{every}",
        )
    if failed_over:
        store.forget_notes(link.id, kind, list(store.notes(link.id, kind)))  # the next mirror asks again
        for problem in found:
            store.clear_problem(link.id, problem)
    else:
        _acknowledge(store, link.id, found, compacted=compacted)
    return control, found


def _acknowledge(store: Store, link: LinkId, problems: Sequence[Problem], *, compacted: bool) -> None:
    """Record what an operator decided about these problems, and clear them."""
    _check_gaps(store, link, [problem for problem in problems if problem.kind == SOURCE_GAP])
    _accept_settings(store, link, {problem.topic for problem in problems if problem.kind == SETTINGS_HELD})
    for problem in problems:
        if problem.partition is not None:
            tp = TopicPartition(problem.topic, problem.partition)
            _go_on_without(store, link, tp, problem, compacted=compacted)
        if problem.kind in {DELETION_HELD, ACL_REMOVAL_HELD}:
            _let_go(store, link, problem)
        store.clear_problem(link, problem)


def _accept_purge(store: LinkStore, link: LinkId, tp: TopicPartition, begin: int, until: int) -> None:
    """Record that an operator goes on without these offsets on the target, while the problem that names them stands."""
    state = store.topic_states(link).get(tp.topic)
    if state is not None:  # else nothing of the topic is mirrored any more
        accept_purge(store, link, tp, state.epoch, begin, until)


def _go_on_without(store: Store, link: LinkId, tp: TopicPartition, problem: Problem, *, compacted: bool) -> None:
    """Record that an operator goes on without the records that a problem names."""
    if problem.kind == SOURCE_GAP:
        _pass_gap(store, link, tp, compacted=compacted)
    elif problem.missing:
        give_up = _accept_purge if problem.kind == TARGET_PURGED else _give_up
        give_up(store, link, tp, *problem.missing)


def _pass_gap(store: Store, link: LinkId, tp: TopicPartition, *, compacted: bool) -> None:
    """Record that an operator goes on without what the source skips, while the problem stands."""
    state = store.topic_states(link).get(tp.topic)
    gap = None if state is None else accept_source_gap(store, link, tp, state.epoch, compacted=compacted)
    if gap is not None:
        _give_up(store, link, tp, *gap)


def _check_gaps(store: Store, link: LinkId, problems: Sequence[Problem]) -> None:
    """Check that what follows the gaps is where the source's log can have it.

    Raises:
        Refused: a batch says that it begins beyond the log's end: its offset is damaged, which no checksum covers.
    """
    gaps, marks = source_gaps(store, link), store.watermarks(link)
    for problem in problems:
        tp = TopicPartition(problem.topic, problem.partition or 0)
        mark = marks.get(tp)
        if tp not in gaps or mark is None or gaps[tp].end <= mark.source_end:
            continue
        raise Refused(
            f"the batch that follows the gap of {tp} says that it begins at {gaps[tp].end}, but {link.source} has "
            f"offsets below {mark.source_end} only: its own is damaged",
            meaning="Going on there would leave out all that producers write up to that offset",
            remedy=f"Let another replica of {tp} lead (kafka-leader-election), or restore it. Without one, "
            f"kafka-delete-records up to {mark.source_end} gives up what {link.source} holds of it (a compacted "
            "topic needs `delete` in its cleanup.policy for that), and the mirror goes on behind that",
        )


def _accept_settings(store: LinkStore, link: LinkId, topics: Collection[str]) -> None:
    """Note for the mirror, which may not be running, the held settings that it may set on the target."""
    held = store.notes(link, SETTINGS_HELD) if topics else {}
    accepted = {topic: replace(HeldSettings.read(held[topic]), accepted=True) for topic in held.keys() & set(topics)}
    if accepted:
        store.put_notes(link, SETTINGS_HELD, {topic: settings.note() for topic, settings in accepted.items()})


def _let_go(store: LinkStore, link: LinkId, problem: Problem) -> None:
    """Note for the mirror, which may not be running, what it may delete on the target."""
    if problem.kind == ACL_REMOVAL_HELD:
        store.put_notes(link, problem.kind, dict.fromkeys(store.notes(link, problem.kind), ACKNOWLEDGED))
        return
    state = store.topic_states(link).get(problem.topic)
    if state is not None:  # else the link has forgotten it
        store.put_notes(link, problem.kind, {problem.topic: state.target_topic_id})


def _give_up(store: LinkStore, link: LinkId, tp: TopicPartition, begin: int, until: int) -> None:
    """Record that an operator goes on without these offsets, while the problem that names them still stands."""
    given_up = given_up_problem(link, tp, begin, until, since=now())
    known = [each for each in store.problems(link) if each.kind == RECORDS_GIVEN_UP and each.concerns(tp)]
    store.put_problem(link, known[0].with_another(given_up) if known else given_up)
    give_up_never_mirrored(store, link, tp, begin, until)  # what is left is told again


@dataclass(frozen=True, slots=True)
class Accepted:
    """The new state of an accepted topic, and how many offsets the target's logs that answer hold of it already. They
    stay: what both sides hold is there twice, once it is mirrored. `already`: it was accepted before, and nothing of it
    was mirrored since, so nothing was changed."""

    topic: TopicState
    stay: int
    already: bool = False


def accept_recreated(store: Store, link: Link, topic: str, *, source: ClusterAdmin, target: ClusterAdmin) -> Accepted:
    """Accept both sides' current topic as a new one: it gets a new epoch and is mirrored from its start.

    The source's start then corresponds to the target's current end. An epoch that no mirror has begun yet is kept.

    Raises:
        ConfigError: the link doesn't cover the topic.
        Refused: the topic was never mirrored, or doesn't exist on the source; or the link is sealed, reversed or paused
            as a whole, so the topic could not be resumed.
        NotShown: the target is another cluster (`accept_target`).
        Unreachable: a cluster doesn't answer.
    """
    _check_covered(link, topic)
    control = _control(store, link)
    _check_serves_source(link, control)
    _check_not_paused(control)
    state = store.topic_states(link.id).get(topic)
    if state is None:
        raise Refused(
            f"{topic} was never mirrored on link {link.id}", remedy="Start the mirror: there is nothing to accept"
        )
    check_target_cluster(store, link, target.cluster_id())
    here = source.topics([topic]).get(topic)
    if here is None:
        raise Refused(f"there is no topic {topic} on {link.id.source}", remedy="Create it there first")
    found = replace(state, source_topic_id=here.topic_id, partitions=here.partitions)
    _note_unmapped(store, link.id, state, source, target)
    (accepted,) = _accept(store, link, [(state, found)], target)
    return accepted


def _note_unmapped(store: Store, link: LinkId, state: TopicState, source: ClusterAdmin, target: ClusterAdmin) -> None:
    """Of partitions whose records on the target nobody knows, store rows of this epoch which say that any record of the
    source may be among them: as long as the next epoch isn't mirrored further, no group is moved past them."""
    problems = [each for each in store.problems(link) if each.kind == RECORDS_UNMAPPED and each.topic == state.topic]
    tps = {
        TopicPartition(state.topic, each.partition): TopicPartition(state.target_topic, each.partition)
        for each in problems
        if each.partition is not None
    }
    if not tps:
        return
    starts, ends = source.start_offsets(tps, partial=True), source.end_offsets(tps, committed=False, partial=True)
    begins, log_ends = target.start_offsets(tps.values(), partial=True), target.log_ends(tps.values(), partial=True)
    rows: list[OffsetMapping] = []
    for tp, there in tps.items():
        if tp in starts and tp in ends and begins.get(there, 0) < log_ends.get(there, 0):
            rows += rows_of_unmapped(tp, state.epoch, (starts[tp], ends[tp]), (begins[there], log_ends[there]))
    store.append_mappings(link, rows)


def accept_target(store: Store, link: Link, cluster_id: str, *, target: ClusterAdmin) -> list[Accepted]:
    """Accept the cluster at the target's address, whatever was there before: each mirrored topic that isn't there as it
    was mirrored becomes a new one, mirrored from its start. The source isn't asked: it may be gone.

    Raises:
        Refused: the target's cluster id isn't `cluster_id`.
        Unreachable: the target doesn't answer.
    """
    _check_serves_source(link, _control(store, link))
    found = target.cluster_id()
    if cluster_id != found:
        raise Refused(
            f"{cluster_id!r} is not the id of {link.id.target}",
            meaning=f"{link.id.target} is cluster {found}; nothing was changed",
            remedy=f"Check bootstrap_servers of {link.id.target}; if it is the cluster to mirror to, give its id",
        )
    note_clusters(store, link.id, target=cluster_id)  # first: the copy of the store's state goes to this cluster, too
    states = store.topic_states(link.id).values()
    ids = {name: info.topic_id for name, info in target.topics({state.target_topic for state in states}).items()}
    lost = [each for each in states if not each.target_topic_id or ids.get(each.target_topic) != each.target_topic_id]
    return _accept(store, link, [(state, state) for state in lost], target)


def _accept(
    store: Store, link: Link, topics: Sequence[tuple[TopicState, TopicState]], target: ClusterAdmin
) -> list[Accepted]:
    """Accept topics as new ones: their recorded states, and what they are on the source."""
    there = target.topics({state.target_topic for state, _ in topics})
    tps = [TopicPartition(name, number) for name, info in there.items() for number in range(info.partitions)]
    starts, ends = target.start_offsets(tps, partial=True), target.log_ends(tps, partial=True)
    stay: dict[str, int] = defaultdict(int)
    for tp, end in ends.items():
        stay[tp.topic] += max(0, end - starts.get(tp, end))
    accepted = []
    for state, here in topics:
        info = there.get(state.target_topic)
        # "": to be created by the mirror
        found = replace(here, target_topic_id="" if info is None else info.topic_id)
        already = found == state and _is_to_begin(store, link.id, state)
        reason = f"accepted as a new topic; epoch {state.epoch + 1}"
        new = state if already else replace(found, epoch=state.epoch + 1, reason=reason)
        accepted.append(Accepted(new, stay[state.target_topic], already))
    fresh = [each.topic for each in accepted if not each.already]
    if fresh:
        store.put_topic_states(link.id, fresh)
    for state in fresh:
        store.clear_problems(link.id, state.topic)
    return accepted


def _is_to_begin(store: Store, link: LinkId, state: TopicState) -> bool:
    """Whether a topic was accepted as a new one, and no mirror has begun it or found anything wrong with it."""
    tps = state.tps()
    return (
        state.epoch > 1
        and not any(problem.topic == state.topic for problem in store.problems(link))
        and store.watermarks(link).keys().isdisjoint(tps)
        and not any(store.mappings(link, tp, state.epoch) for tp in tps)
    )


def _check_covered(link: Link, topic: str | None) -> None:
    if topic is not None and not link.covers_topic(topic):
        raise ConfigError(
            f"--topic: link {link.id} does not cover {topic}", remedy="Name a topic of its source that `topics` matches"
        )


def _control(store: LinkStore, link: Link) -> LinkControl:
    return store.link_control(link.id) or LinkControl(link.id, Direction.ACTIVE, 0, now())


def _check_not_paused(control: LinkControl) -> None:
    if control.direction is Direction.PAUSED:
        raise Refused(
            f"link {control.link} is paused as a whole",
            meaning="Nothing was changed",
            remedy=f"`drkit link resume '{control.link}'` resumes all topics",
        )


def _check_serves_source(link: Link, control: LinkControl) -> None:
    if control.direction.serves_source:
        return
    by = f" by run {control.run}" if control.run else ""
    back = f"`drkit failback` brings it back; to control the way back, name {control.link.reversed()}"
    raise Refused(
        f"link {control.link} is {control.direction}{by}: nothing of it can be paused, resumed or acknowledged",
        remedy=serve_again(link) if link.alters and control.direction is Direction.SEALED else back,
    )


def _change(store: LinkStore, link: Link, decide: Callable[[LinkControl], LinkControl]) -> LinkControl:
    """Change a link's control by compare-and-set; writes nothing if nothing changes."""
    for _ in range(_TRIES):
        kept = store.link_control(link.id)
        control = kept or LinkControl(link.id, Direction.ACTIVE, 0, now())
        _check_serves_source(link, control)
        wanted = decide(control)
        if wanted == control and kept is not None:
            return control
        wanted = replace(wanted, version=control.version + 1, changed_at=now())
        if store.set_link_control(wanted, expected_version=None if kept is None else kept.version):
            return wanted
    raise DrkitError(
        f"the state of link {link.id} keeps changing",
        remedy="Another process is changing it; check with `drkit status`",
    )
