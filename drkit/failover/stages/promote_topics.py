"""Promotes a standby's topics: puts the settings and ACLs that were held back until the switch.

All of it comes from the mirror's notes in the store, made while the source was there. What the target refuses is
reported and delays nothing else: clients are waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.errors import DrkitError
from drkit.model.link_state import STANDBY_WRITABLE
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import ACL_NOTES, AclRole, own_principals
from drkit.model.topics.standby import ALIGNING, RELEASED, SOURCE_SETTINGS, UNCOMPACTED, read_note, release_settings
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted
from drkit.store.api import Store
from drkit.store.link_notes import noted_rules, removed_rules, returned_rules

_Act = Callable[[Store, Link, ClusterAdmin], "PromotionReport"]


@dataclass(frozen=True, slots=True)
class PromotionReport:
    """What was done: topics whose settings were changed, ACLs put, ACLs removed; and failures, in words.

    `again`: ACLs that the mirror had removed, as its source had, and that the target has again.
    """

    topics: int = 0
    put: int = 0
    removed: int = 0
    failures: tuple[str, ...] = ()
    again: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = []
        if self.topics:
            parts.append(f"{counted(self.topics, 'topic')} with the source's settings")
        if self.put or self.removed:
            parts.append(f"{self.put} ACLs put, {self.removed} removed")
        if self.again:
            rules = and_more([f"'{rule}'" for rule in self.again], shown=1)
            parts.append(f"WITHDRAWN BEFORE, AND THERE AGAIN: {rules}; kafka-acls.sh --remove takes them away")
        if self.failures:
            parts.append(f"NOT DONE: {and_more(self.failures, shown=1)}")
        return "; ".join(parts)


def release(
    store: Store,
    link: Link,
    target: ClusterAdmin,
    check: Callable[[], None],
    *,
    settled: frozenset[str] = frozenset(),
    links: Collection[LinkId] = (),
) -> PromotionReport:
    """Put what was held back on the target's topics. Idempotent.

    Args:
        store: the notes.
        link: the direction of the data until now: its target stops being a standby.
        target: that cluster.
        check: called before each change; raises `DrkitError` where the target is a standby again.
        settled: topics of it that already have their own settings.
        links: the configuration's, which may have put ACLs there, too.

    Raises:
        DrkitError: what `check` raises.
    """
    settings = _attempt(partial(_settings, check=check, settled=settled), store, link, target, check)
    rules = _attempt(partial(activate, check=check, links=links), store, link, target, check)
    return replace(rules, topics=settings.topics, failures=settings.failures + rules.failures)


def activate(
    store: Store, link: Link, target: ClusterAdmin, *, check: Callable[[], None], links: Collection[LinkId] = ()
) -> PromotionReport:
    """Put the ACLs for after the switch, and remove those that replaced them. `check`: see `release`.

    A mirror that runs again on this link, with `acls = "standby"`, reverts this.

    Raises:
        DrkitError: the target or the store doesn't answer, or there is no authorizer.
    """
    if link.acls is AclMode.OFF:
        return PromotionReport()
    check()
    store.clear_problems(link.id, kind=STANDBY_WRITABLE)  # it is none any more, and no mirror says so
    noted = noted_rules(store, link.id)
    if not (noted or removed_rules(store, link.id)):
        return PromotionReport()
    there = target.acls()
    again = returned_rules(store, link, links, there, own_principals(target.principal))
    due = {rule for rule, role in noted.items() if role is not AclRole.UNTIL_SWITCH} - there
    check()
    store.put_notes(link.id, ACL_NOTES, {rule.key: AclRole.ON.value for rule in due})  # ours before it is there
    store.forget_notes(
        link.id, ACL_NOTES, [rule.key for rule, role in noted.items() if role is AclRole.DUE and rule in there]
    )
    failures = target.create_acls(due)
    until = {rule for rule, role in noted.items() if role is AclRole.UNTIL_SWITCH}
    check()
    kept = target.delete_acls(until & there)
    store.forget_notes(link.id, ACL_NOTES, [rule.key for rule in until - set(kept)])
    return PromotionReport(
        put=len(due) - len(failures),
        removed=len(until & there) - len(kept),
        failures=tuple(f"the rule '{rule}': {why}" for rule, why in {**failures, **kept}.items()),
        again=tuple(map(str, sorted(again))),
    )


def _settings(
    store: Store, link: Link, target: ClusterAdmin, *, check: Callable[[], None], settled: frozenset[str]
) -> PromotionReport:
    """Replace the settings that a topic has only while it is a standby by its source's."""
    noted = store.notes(link.id, SOURCE_SETTINGS)
    states = store.topic_states(link.id)
    names = {state.target_topic: noted[topic] for topic, state in states.items() if topic in noted}
    names = {name: text for name, text in names.items() if name not in settled}
    topics_aligning = store.notes(link.id, ALIGNING)
    aligning = {states[topic].target_topic for topic in topics_aligning if topic in states}
    infos = target.topics(names)
    effective = target.topic_configs(infos, keys=(*RELEASED, *UNCOMPACTED))
    wanted = {
        name: release_settings(
            read_note(text),
            effective[name],
            target_replicas=infos[name].replication_factor,
            aligning=name in aligning,
        )
        for name, text in names.items()
        if name in effective
    }
    changed = {name: settings for name, settings in wanted.items() if settings}
    check()
    failures = target.set_many_topic_configs(changed)
    return PromotionReport(
        topics=len(changed) - len(failures),
        failures=tuple(f"settings of {name}: {why}" for name, why in failures.items()),
    )


def _attempt(act: _Act, store: Store, link: Link, target: ClusterAdmin, check: Callable[[], None]) -> PromotionReport:
    try:
        return act(store, link, target)
    except DrkitError as error:
        check()  # what it raised isn't the target's to report
        return PromotionReport(failures=(error.what,))
