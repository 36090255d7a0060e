"""Problems that each poll looks for: fenced clusters that clients should use, unfenced ones, blocked topics, filler.

They are detected by ACLs, settings and log starts, and the store's notes. Filler is visible again where a broker was
killed soon after its removal and lost its log start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime

from drkit.kafka.admin.clusters import Clusters
from drkit.kafka.admin.write_block import BLOCK, is_blocked
from drkit.lag.groups_left_behind import GroupsLeftBehind, groups_left_behind, mover_of
from drkit.model.errors import AuthenticationError, DrkitError, Refused, Unreachable
from drkit.model.link_state import FILLER_VISIBLE, SOURCE_TOPIC_DENIED, WHOLE_LINK, LinkControl, Problem
from drkit.model.runs import (
    FENCES,
    OVER,
    FenceMethod,
    FenceState,
    mark_of,
    newest,
    run_to_resume,
    serving_cluster,
    write_block_kind,
)
from drkit.model.topics.acls import Acl, fence_rules_kind, others_rules_kind, topics_denied
from drkit.model.topology import Link, LinkId, TopicPartition
from drkit.model.wording import and_more, counted
from drkit.observe.cluster_log_ends import ClusterLogEnds
from drkit.store.api import Store
from drkit.store.fences_beside import fences_beside, lift_of, names_closed
from drkit.store.link_notes import alignments

FENCED = "fenced"
"""Kind of the problem that a cluster that clients should use is fenced; checked at each poll."""
UNFENCED = "unfenced"
"""Kind of the problem that a former primary isn't fenced; checked at each poll, too."""
OUTSIDE_THE_FENCE = "outside_the_fence"
"""Kind of a problem that isn't recorded: each status detects it."""
GROUP_LEFT_BEHIND = "group_left_behind"
"""Kind of the problem that a group has committed on a former primary, and no move has taken it, or that this can't be
told; each status detects it."""
WRITES_BLOCKED = "writes_blocked"
"""Kind of the problem that topics take no writes, from a scrub that was interrupted; checked at each poll, too."""


def fence_problem(
    store: Store,
    link: Link,
    control: LinkControl | None,
    rules: Collection[Acl] | None,
    at: datetime,
    others: Collection[LinkId],
) -> Problem | None:
    """The fence that keeps clients out of the cluster that they should use; None: there is none.

    Args:
        store: its notes.
        link: a configured link.
        control: its decision.
        rules: the ACLs on that cluster; None: they can't be read.
        at: now.
        others: the configured links: their fences may keep out clients of this one, too.
    """
    cluster = serving_cluster(link, None if control is None else control.direction)
    noted = {Acl.parse(key) for key in store.notes(link.id, fence_rules_kind(cluster))}
    denying = {rule for rule in noted if rule.permission == "deny"}
    standing = denying if rules is None else denying & set(rules)
    record = newest(store.notes(link.id, FENCES), cluster)
    by_command = record is not None and record.method is FenceMethod.COMMAND and record.state is not FenceState.OPEN
    marked = rules is not None and mark_of(link) in rules
    if not (standing or marked or by_command):
        return _fenced_for_others(store, link, cluster, rules, others)
    whose = f" by run {record.run}" if record is not None and record.state is not FenceState.OPEN else ""
    seen = "" if rules is not None or by_command else " as far as the store knows"
    return Problem(
        FENCED,
        WHOLE_LINK,
        None,
        f"{cluster} is closed to its clients{whose}, and they are to use it{seen}",
        _remedy(store, link, None if record is None else record.run),
        halted=False,
        since=at if record is None else record.at,
    )


def _fenced_for_others(
    store: Store, link: Link, cluster: str, rules: Collection[Acl] | None, others: Collection[LinkId]
) -> Problem | None:
    shut = fences_beside(store, link, others, cluster, rules)
    if not shut:
        return None
    denied = [each for each in shut.values() if not each.by_command]
    by_command = len(denied) < len(shut)
    how = "by its command" if by_command else f"by rules ({names_closed(denied)})"
    links, first = and_more(list(map(str, shut))), min(shut, key=str)
    return Problem(
        FENCED,
        WHOLE_LINK,
        None,
        f"{cluster} is closed to its clients {how}, for {links}, and those of {link.id} are to use it",
        f"It opens once no link needs it closed: drkit failback --link '{first}'. {lift_of(first, cluster)}",
        halted=False,
        since=max(each.record.at for each in shut.values()),
    )


def unfenced_problem(store: Store, link: Link, rules: Collection[Acl] | None, at: datetime) -> Problem | None:
    """The problem that a former primary answers and isn't fenced; None: it is fenced, or that is unknown.

    Args:
        store: its notes.
        link: a configured link that is sealed.
        rules: the ACLs on the source, which answers (empty: none, or it has no authorizer); None: they can't be read.
        at: now.
    """
    source = link.id.source
    record = newest(store.notes(link.id, FENCES), source)
    if record is not None and record.method is FenceMethod.COMMAND:
        if record.state in {FenceState.CLOSED, FenceState.STANDBY}:
            return None
    elif (
        rules is None
        or mark_of(link) in rules
        or any(link.covers_topic(topic) for topic in topics_denied(rule.key for rule in rules))
    ):
        return None
    return Problem(
        UNFENCED,
        WHOLE_LINK,
        None,
        f"{source} answers and is not fenced: what clients write there never reaches {link.id.target}",
        f"drkit fence --link '{link.id}' closes it to its clients; where it has no authorizer and no fence command, "
        "stop them there",
        halted=False,
        since=at if record is None else record.at,
    )


def outside_the_fence(
    store: Store, link: Link, source: ClusterLogEnds, hidden: Collection[str], at: datetime
) -> Iterator[Problem]:
    """Topics that the ACL fence on a former primary doesn't cover: created after it, or opened since; and topics that
    the primary doesn't show drkit (`hidden`, of `hidden_topics`)."""
    kinds = fence_rules_kind(link.id.source), others_rules_kind(link.id.source)
    denied = topics_denied(key for kind in kinds for key in store.notes(link.id, kind))
    standing = denied if source.rules is None else denied & topics_denied(rule.key for rule in source.rules)
    held: dict[str, int] = defaultdict(int)
    for tp, end in source.end.items():
        held[tp.topic] += end
    for topic in sorted(held.keys() - denied) if denied else ():
        reason = (
            f"{topic} was created on {link.id.source} after the fence: clients may write there, and what they wrote "
            f"({held[topic]:,} offsets) is not on {link.id.target}"
        )
        yield _outside(link, topic, reason, at)
    if standing or mark_of(link) in (source.rules or ()):  # else the whole fence is gone: `unfenced` reports it
        for topic in sorted((held.keys() | set(hidden)) & (denied - standing)):
            reason = (
                f"the rule that keeps clients from writing to {topic} was removed from {link.id.source}: what they "
                f"write there never reaches {link.id.target}"
            )
            yield _outside(link, topic, reason, at)
    for topic in sorted(hidden):
        yield Problem(
            SOURCE_TOPIC_DENIED,
            topic,
            None,
            f"drkit can't see {topic} on {link.id.source}: whether clients write there behind the fence isn't known",
            f"Grant drkit's principal DESCRIBE on {topic} on {link.id.source}",
            halted=False,
            since=at,
        )


def left_behind_problems(
    clusters: Clusters, store: Store, link: Link, run: str | None, at: datetime
) -> Iterator[Problem]:
    """The groups that have committed on a former primary, which answers, and that no move has taken; or why that isn't
    known.

    `run`: the run that sealed the link; while it isn't over it may still move them.
    """
    if any(each.run == run and each.state not in OVER for each in store.runs()):
        return
    seen = [(each.group, each.topic, each.partition) for each in store.group_positions(link.id)]
    try:
        found = groups_left_behind(clusters, link, seen, only_new=True)
    except DrkitError as error:
        found = GroupsLeftBehind(unread=error.what)
    source, target = link.id.source, link.id.target
    fence = f"drkit fence --link '{link.id}' keeps them from committing on {source}"
    if found.positions:
        places = and_more([f"{each.group} on {each.tp} at {each.offset:,}" for each in found.positions])
        groups = sorted({each.group for each in found.positions})
        more = f". Whether there are more isn't known: {found.unread}" if found.unread else ""
        reason = (
            f"{counted(len(groups), 'group')} committed on {source}, and no move has taken what is there: {places}. "
            f"Without a position on {target} consumers begin there as auto.offset.reset says: by default they skip "
            f"what they had not read{more}"
        )
        remedy = f"{mover_of(link, groups)}; {fence}"
    elif found.unread:
        reason = f"whether groups have committed on {source} that no move has taken isn't known: {found.unread}"
        remedy = (
            f"Start the brokers of {source} that don't answer, or grant drkit's principal DESCRIBE on its groups "
            f"(`drkit acls` lists its rights), then look again; {fence}"
        )
    else:
        return
    yield Problem(GROUP_LEFT_BEHIND, WHOLE_LINK, None, reason, remedy, halted=False, since=at)


def hidden_topics(store: Store, link: Link, clusters: Clusters, source: ClusterLogEnds) -> frozenset[str]:
    """Topics of the link that were mirrored, or fenced, and that a former primary which answers doesn't show drkit."""
    if not source.reachable:
        return frozenset()
    kinds = fence_rules_kind(link.id.source), others_rules_kind(link.id.source)
    fenced = topics_denied(key for kind in kinds for key in store.notes(link.id, kind))
    absent = {
        name for name in fenced | store.topic_states(link.id).keys() if link.covers_topic(name)
    } - source.ids.keys()
    denied: set[str] = set()
    try:
        clusters.admin(link.id.source, may_be_gone=True).topics(absent, denied=denied)
    except (Unreachable, AuthenticationError, Refused):
        return frozenset()
    return frozenset(denied)


def _outside(link: Link, topic: str, reason: str, at: datetime) -> Problem:
    remedy = f"drkit fence --link '{link.id}' closes it too"
    return Problem(OUTSIDE_THE_FENCE, topic, None, reason, remedy, halted=False, since=at)


def blocked_problem(store: Store, link: Link, clusters: Clusters, at: datetime) -> Problem | None:
    """The problem that topics take no writes because a scrub that blocked them was interrupted; None: there are none,
    or their cluster doesn't answer.

    Args:
        store: its notes.
        link: a configured link.
        clusters: connections.
        at: now.
    """
    cluster = link.id.source  # a scrub is of the old primary
    noted = store.notes(link.id, write_block_kind(cluster))
    if not noted:
        return None
    try:
        found = clusters.admin(cluster, may_be_gone=True).topic_configs(noted, keys=list(BLOCK))
    except (Unreachable, AuthenticationError, Refused):
        return None
    blocked = sorted(name for name, config in found.items() if is_blocked(config))
    if not blocked:
        return None
    return Problem(
        WRITES_BLOCKED,
        WHOLE_LINK,
        None,
        f"{and_more(blocked)} on {cluster} take no writes of clients: a scrub blocks them for its last look, or was "
        "interrupted just then",
        "`drkit resume` continues the run, `drkit abandon RUN` gives it up (RUN: in `drkit runs`); once it is over, "
        f"`drkit fence --lift --link '{link.id}'` lets them in",
        halted=False,
        since=at,
    )


def _remedy(store: Store, link: Link, run: str | None) -> str:
    lift = f"drkit fence --lift --link '{link.id}' opens it"
    listed = store.runs()
    summary = next((found for found in listed if found.run == run), None)
    if summary is None or summary.kind == "fence" or summary.state in OVER:
        return lift
    resume = f"drkit resume {run_to_resume(summary.run, listed)}"
    return f"{lift}; run {run} is {summary.state}: {resume} continues it, drkit abandon {run} gives it up"


def filler_problems(
    store: Store,
    link: Link,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ids: Mapping[str, str],
    at: datetime,
) -> list[Problem]:
    """A problem for each target partition of a failed-over link that shows filler again.

    Args:
        store: its notes.
        link: a link on which no mirror may run: a mirror would remove the filler by itself.
        starts: the log starts on the target, by its own topic names.
        ends: the log ends.
        ids: of the target's topics.
        at: now.
    """
    found = []
    for tp, each in sorted(alignments(store, link.id).items()):
        place = each.target_tp
        visible = min(each.end, ends.get(place, 0)) - starts.get(place, each.end)
        if visible <= 0 or ids.get(each.target_topic) != each.target_topic_id:
            continue
        found.append(
            Problem(
                FILLER_VISIBLE,
                tp.topic,
                tp.partition,
                f"{place} on {link.id.target} begins at {starts[place]} again: up to {visible:,} empty records that "
                f"drkit had written and removed below {each.end} are visible, and consumers that read from the start "
                "get them. A killed broker has lost its log start offset",
                f"Remove only them: drkit link trim '{link.id}'",
                halted=False,
                since=at,
            )
        )
    return found
