"""Finds links that would carry records in a cycle, or write one topic from two sides. Pure.

It follows a topic name along the links as records would travel: each link gives it a name, and provenance stops
records where they have been. Under the identity policy, records that return to their topic circulate forever; a name
that grows at each hop (identity and prefix mixed) never ends either. The names tried are topics that exist, or examples
of every way in which names can match the links' patterns (`drkit.model.topics.name_patterns`).

Clusters are told apart by what the caller knows: aliases that reach the same brokers, or Kafka's cluster ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from drkit.model.topics.name_patterns import examples
from drkit.model.topology import Link, TopicPolicy

_MOST_STEPS = 100_000

Clusters = Mapping[str, str]
"""The cluster behind an alias; two aliases of one cluster have the same value."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """Links along which a topic's records return, in order; `topic` is its name at the start."""

    links: tuple[Link, ...]
    topic: str

    def __str__(self) -> str:
        return " -> ".join([self.links[0].id.source, *(link.id.target for link in self.links)])


@dataclass(frozen=True, slots=True)
class Clash:
    """Two links that write the same topic of the same cluster; `topic` is its name there."""

    links: tuple[Link, Link]
    topic: str


def find_cycle(
    links: Sequence[Link], clusters: Clusters, names: Iterable[str], *, through: Link | None = None
) -> Cycle | None:
    """Find a cycle for these topic names, or None.

    `through`: only cycles that contain this link.
    """
    if _only_prefixed(links, clusters):
        return None
    steps = _Steps()
    for name in names:
        for first in links if through is None else (through,):
            if first.covers_topic(name):
                cycle = _follow(links, clusters, first, name, steps)
                if cycle is not None and through in {None, *cycle.links}:
                    return cycle
    return None


def find_clash(
    links: Sequence[Link], clusters: Clusters, names: Iterable[str], *, of: Link | None = None
) -> Clash | None:
    """Find two links that write the same topic, among these names (of any link's source), or None.

    `of`: only pairs that contain this link.
    """
    for name in names:
        for one in (link for link in links if link.covers_topic(name)):
            there, target = one.target_topic(name), clusters[one.id.target]
            for other in links:
                concerned = other.id != one.id and of in {None, one, other}
                if concerned and clusters[other.id.target] == target and other.source_topic(there) is not None:
                    return Clash((one, other), there)
    return None


def sharing(links: Sequence[Link], clusters: Clusters, names: Iterable[str]) -> set[Link]:
    """The links whose target topics have other writers, so that only provenance stops their records from returning."""
    bare = {replace(link, provenance=False): link for link in links}
    marking = [link for link, marked in bare.items() if marked.marks]
    shared: set[Link] = set()
    steps = _Steps()
    for name in names if marking else ():
        for link in marking:
            cycle = _follow(list(bare), clusters, link, name, steps) if link.covers_topic(name) else None
            if cycle is not None:
                shared.update(bare[each] for each in cycle.links)
    return shared


def names_to_try(links: Sequence[Link]) -> list[str]:
    """Topic names that these links name, or examples that match their patterns."""
    patterns: dict[str, None] = {}
    for link in links:
        patterns.update(dict.fromkeys((*link.topics, *link.exclude_topics)))
        if link.policy is TopicPolicy.PREFIX:
            patterns[link.passed_target] = None
    prefixes = {link.id.source for link in links if link.policy is TopicPolicy.PREFIX}
    prefixed = [f"{re.escape(prefix)}[.](?:{pattern})" for prefix in sorted(prefixes) for pattern in patterns]
    tried = dict.fromkeys(name for link in links for pair in link.renames for name in pair)
    tried.update(dict.fromkeys(examples([*patterns, *prefixed])))
    return list(tried)


class _Steps:
    """A budget of steps: the number of paths multiplies in a mesh of many links."""

    def __init__(self) -> None:
        self._left = _MOST_STEPS

    def take(self) -> bool:
        self._left -= 1
        return self._left >= 0


def _only_prefixed(links: Sequence[Link], clusters: Clusters) -> bool:
    """Whether names alone stop records from returning: each hop adds its alias as a prefix, and no later hop accepts
    it."""
    aliases = {alias for link in links for alias in (link.id.source, link.id.target)}
    return all(link.policy is TopicPolicy.PREFIX and not link.inverse for link in links) and (
        len({clusters[alias] for alias in aliases}) == len(aliases)
    )


def _follow(links: Sequence[Link], clusters: Clusters, first: Link, name: str, steps: _Steps) -> Cycle | None:
    """Follow a record of topic `name` along `first` and further; the cycle, or None."""
    by_source: dict[str, list[Link]] = {}
    for link in links:
        by_source.setdefault(clusters[link.id.source], []).append(link)
    longest = 2 * len(links) + 1
    ways: list[tuple[tuple[Link, ...], tuple[tuple[str, str], ...], frozenset[str]]] = [
        ((first,), ((clusters[first.id.source], name),), frozenset())
    ]
    while ways and steps.take():
        way, places, passed = ways.pop()
        link, topic = way[-1], places[-1][1]
        target = clusters[link.id.target]
        if not link.covers_topic(topic) or (link.marks and target in passed):
            continue
        if link.marks:
            passed |= {clusters[link.id.source]}
        place = (target, link.target_topic(topic))
        if place in places:
            since = places.index(place)
            return Cycle(way[since:], places[since][1])
        if len(way) > longest:
            return _endless(way, places)
        ways += [((*way, following), (*places, place), passed) for following in by_source.get(target, ())]
    return None


def _endless(way: tuple[Link, ...], places: tuple[tuple[str, str], ...]) -> Cycle:
    """A name that grows at each hop: the part of the path that first returns to a cluster."""
    seen: dict[str, int] = {}
    for index, (cluster, _) in enumerate(places):
        if cluster in seen:
            return Cycle(way[seen[cluster] : index], places[seen[cluster]][1])
        seen[cluster] = index
    return Cycle(way, places[0][1])


def cycle_error(cycle: Cycle) -> tuple[str, str, str]:
    """What a cycle is, what it means, and what to do."""
    names = ", ".join(str(link.id) for link in cycle.links)
    way_back = next((link for link in cycle.links if link.inverse), None)
    if len(cycle.links) == 1:
        what = f"{names} would mirror a cluster into itself (both aliases reach the same one)"
        return what, f"Topic {cycle.topic!r} would be appended to itself forever", "Name two different clusters"
    what = f"records of topics such as {cycle.topic!r} would circulate {cycle} forever, by the links {names}"
    meaning = "Each link takes the records that the one before it wrote for new ones"
    if way_back is not None:
        return what, meaning, _without([link for link in cycle.links if link is not way_back], way_back)
    remedy = (
        'Use policy = "prefix" on each of these links, or provenance = true on each of them; or make their topics '
        "differ with `topics` and `exclude_topics`. (A way back after a failover needs no link of its own: "
        "`drkit failback` reverses the link)"
    )
    return what, meaning, remedy


def clash_error(clash: Clash, clusters: Clusters) -> tuple[str, str, str]:
    """What a clash is, what it means, and what to do."""
    one, other = (link.id for link in clash.links)
    what = f"{one} and {other} would both write topics such as {clash.topic!r} of {one.target}"
    meaning = (
        "A target partition has one writer: drkit must know each record's offset there before it writes, and positions "
        "on the target stand for one source"
    )
    way_back = next((link for link in clash.links if link.inverse), None)
    if way_back is not None:
        return what, meaning, _without([link for link in clash.links if link is not way_back], way_back)
    if clusters[one.source] == clusters[other.source]:
        return what, meaning, "Let each topic travel on one of these links: `exclude_topics` on the other"
    remedy = 'Use policy = "prefix" on both (each source\'s topics get its name), `rename`, or topics that differ'
    return what, meaning, remedy


def _without(links: Sequence[Link], way_back: Link) -> str:
    """How to bring a link back although others are in the way."""
    names, them = ", ".join(str(link.id) for link in links), "it" if len(links) == 1 else "them"
    link = way_back.id.reversed()
    return (
        f"Stop the mirror of {names} and take {them} out of the configuration until {link} is brought back. "
        f"(After a reprotect of {link} its topics have to differ from those of {names} for good)"
    )
