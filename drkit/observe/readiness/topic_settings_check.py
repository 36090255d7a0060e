"""Whether the target's topics have the settings that the link's mirror gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from drkit.kafka.admin.clusters import Clusters
from drkit.model.topics.standby import ALIGNING
from drkit.model.topics.standby_settings import READ, SettingChanges, settings_to_put, settings_to_read
from drkit.model.topology import Link
from drkit.model.wording import and_more, counted
from drkit.observe.readiness.check import Check, CheckOutcome
from drkit.observe.status import LinkStatus
from drkit.store.api import LinkStore

NAME = "topic settings"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TopicsSeen:
    """Effective settings of the link's mirrored topics on both clusters.

    Args:
        source: by source topic.
        target: by target topic.
        replicas: of the target's topics.
        hidden: topics whose settings a cluster doesn't show, as `topic on cluster`.
        aligning: source topics that must not be compacted yet.
    """

    source: Mapping[str, Mapping[str, str]]
    target: Mapping[str, Mapping[str, str]]
    replicas: Mapping[str, int]
    hidden: Collection[str] = ()
    aligning: Collection[str] = ()


def topic_settings_check(status: LinkStatus, store: LinkStore, clusters: Clusters) -> Check:
    """Compare as the mirror's topic sync does, with a few requests for all topics together.

    Raises:
        Unreachable: a cluster or the store doesn't answer.
    """
    link = status.link
    source, target = (clusters.admin(each, may_be_gone=True) for each in (link.id.source, link.id.target))
    names = {each.topic: each.target_topic for each in status.partitions}
    ours: set[str] = set()
    theirs: set[str] = set()
    there = target.topics(set(names.values()), denied=theirs)
    seen = TopicsSeen(
        source.topic_configs(names, keys=READ, denied=ours),
        target.topic_configs(there, keys=settings_to_read(link, names), denied=theirs),
        {name: info.replication_factor for name, info in there.items()},
        [f"{name} on {alias}" for alias, hidden in ((source.alias, ours), (target.alias, theirs)) for name in hidden],
        set(store.notes(link.id, ALIGNING)),
    )
    return compared(link, names, seen, mirrors=status.worker is not None)


def compared(link: Link, names: Mapping[str, str], seen: TopicsSeen, *, mirrors: bool) -> Check:
    """The check of what was seen. Pure.

    Args:
        link: whose topics.
        names: the target's topic of each of the source's.
        seen: the settings.
        mirrors: whether a mirror runs, which puts what differs.
    """
    due = {topic: changes for topic, changes in _changes(link, names, seen) if changes.all or changes.unknown}
    unseen = f"not compared, since drkit isn't shown them: {and_more(sorted(seen.hidden))}" if seen.hidden else ""
    if due:
        told = [_told(names[topic], changes, seen) for topic, changes in sorted(due.items())]
        are = f"of {counted(len(due), 'topic')} on {link.id.target} differ from what the mirror gives them"
        why = f"settings {are}: {and_more(told, separator='; ', shown=_SHOWN)}"
        return Check(NAME, CheckOutcome.WARN, "; ".join(filter(None, (why, unseen))), _remedy(link, mirrors=mirrors))
    if seen.hidden:
        return Check(NAME, CheckOutcome.UNKNOWN, unseen, "drkit acls --command doctor prints the ACLs")
    compared_topics = sum(topic in seen.source and name in seen.target for topic, name in names.items())
    return Check(
        NAME,
        CheckOutcome.OK,
        f"{counted(compared_topics, 'topic')} of {link.id.target} have what the mirror gives them",
    )


def _changes(link: Link, names: Mapping[str, str], seen: TopicsSeen) -> Iterator[tuple[str, SettingChanges]]:
    for topic, name in names.items():
        if topic in seen.source and name in seen.target:
            yield (
                topic,
                settings_to_put(
                    link,
                    topic,
                    seen.source[topic],
                    seen.target[name],
                    target_replicas=seen.replicas[name],
                    aligning=topic in seen.aligning,
                ),
            )


def _told(name: str, changes: SettingChanges, seen: TopicsSeen) -> str:
    """Each setting of a topic that differs, with both values."""
    parts = [f"{key} is {seen.target[name][key]}, not {value}" for key, value in sorted(changes.all.items())]
    parts += [f"{key}, an override of the link, is no setting of its brokers" for key in changes.unknown]
    return f"{name} ({and_more(parts, shown=_SHOWN)})"


def _remedy(link: Link, *, mirrors: bool) -> str:
    if not mirrors:
        return "Start drkit mirror: it puts them"
    status = f"drkit status --link '{link.id}'"
    return f"The mirror puts them within seconds; what {link.id.target} refuses is a problem in {status}"
