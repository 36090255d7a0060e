"""Keeps the source's ACLs on the target, as the link's `acls` says (`drkit.model.topics.acls` decides).

ACLs put now, and those to put at the switch, are noted in the store first: the failover's switch
(`drkit.failover.stages.promote_topics`) uses only the notes, because the source may be gone then. An ACL that the
source no longer has is removed after several looks have missed it; a source that suddenly has no ACLs at all has lost
them, or its authorizer, and changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.health.problems import Problems
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.link_state import WHOLE_LINK
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import ACL_NOTES, Acl, Changes, carried, changes, own_principals, patterned, roles, writers
from drkit.model.topology import Link, LinkId
from drkit.store.api import Store
from drkit.store.link_notes import fence_rules, noted_rules

log = logging.getLogger(__name__)

SECONDS = 5.0
"""Time between looks."""
MISSES = 3
"""How many looks must miss an ACL before it is removed."""
_UNAVAILABLE = frozenset({"acls_unavailable", "acls_vanished"})
_WRITABLE = frozenset({"standby_writable"})
_REFUSED = frozenset({"acl_refused"})


class AclSync:
    """Keeps the target's ACLs in step. Not thread-safe.

    Args:
        link: coverage, names, and `acls` (not off).
        source: the cluster whose ACLs are read.
        target: the cluster where they are put.
        store: groups of the link, and the notes.
        problems: where facts for an operator go.
        links: the configuration's links, whose fences may have put ACLs on the source.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        store: Store,
        problems: Problems,
        *,
        links: Sequence[LinkId] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._link = link
        self._links = {link.id, link.id.reversed(), *links}
        self._source = source
        self._target = target
        self._store = store
        self._problems = problems
        self._clock = clock
        self._looked_at = -SECONDS
        self._missed: dict[Acl, int] = {}
        self._shown: set[str] = set()
        self._own = own_principals(source.principal, target.principal)

    def sync(self, topics: Collection[str]) -> None:
        """Bring the target's ACLs in step, at most every `SECONDS`. A cluster that doesn't answer is asked again then.

        Args:
            topics: the source's topics that the link covers.
        """
        if self._clock() - self._looked_at < SECONDS:
            return
        self._looked_at = self._clock()
        try:
            self._bring_in_step(topics)
        except Unreachable as error:
            log.info("%s: access rules are checked again later: %s", self._link.id, error.what)
        except DrkitError as error:
            self._problems.put(
                "acls_unavailable",
                WHOLE_LINK,
                None,
                f"access rules don't follow: {error.what}",
                error.remedy or "Remove the cause named; drkit retries it automatically",
                halted=False,
            )

    def _bring_in_step(self, topics: Collection[str]) -> None:
        fences = fence_rules(self._store, self._links, self._link.id.source)
        theirs, there = self._source.acls() - fences, self._target.acls()
        noted = noted_rules(self._store, self._link.id)
        if not theirs and noted:
            self._problems.put(
                "acls_vanished",
                WHOLE_LINK,
                None,
                f"{self._link.id.source} has no access rules any more; on {self._link.id.target} they stay as they are",
                f'Give {self._link.id.source} its rules back; or set acls = "off" and remove them by hand',
                halted=False,
            )
            return
        self._problems.settle(WHOLE_LINK, kinds=_UNAVAILABLE)
        groups = {p.group for p in self._store.group_positions(self._link.id)} if patterned(theirs) else set()
        wanted = roles(carried(theirs, self._link, topics, groups, self._own), self._link.acls)
        todo = self._patiently(changes(wanted, noted, there), wanted)
        self._apply(todo)
        if self._link.acls is AclMode.STANDBY:
            self._show_writers(there - todo.remove, topics)

    def _patiently(self, todo: Changes, wanted: Collection[Acl]) -> Changes:
        """Drop removals of ACLs that weren't missed often enough."""
        lost = {rule for rule in todo.forget if rule not in wanted}
        self._missed = {rule: self._missed.get(rule, 0) + 1 for rule in lost}
        early = {rule for rule, count in self._missed.items() if count < MISSES}
        return replace(todo, remove=todo.remove - early, forget=todo.forget - early)

    def _apply(self, todo: Changes) -> None:
        link = self._link.id
        if todo.note:
            self._store.put_notes(link, ACL_NOTES, {rule.key: role.value for rule, role in todo.note.items()})
        failures = {**self._target.delete_acls(todo.remove), **self._target.create_acls(todo.put)}
        after = {rule.key: role.value for rule, role in todo.note_after.items() if rule not in failures}
        self._store.put_notes(link, ACL_NOTES, after)
        self._store.forget_notes(link, ACL_NOTES, [rule.key for rule in todo.forget if rule not in failures])
        for rule, reason in failures.items():
            self._problems.put(
                "acl_refused",
                rule.name,
                None,
                f"{link.target} refuses a change of the rule '{rule}': {reason}",
                "Remove the cause named; drkit retries it automatically",
                halted=False,
            )
        for rule in {*todo.put, *todo.remove} - set(failures):
            self._problems.settle(rule.name, kinds=_REFUSED)
            log.info("%s: %s %s: %s", link, link.target, "has now" if rule in todo.put else "no longer has", rule)

    def _show_writers(self, there: Collection[Acl], topics: Collection[str]) -> None:
        names = [self._link.target_topic(topic) for topic in topics]
        by_name: dict[str, list[Acl]] = {}
        for rule in writers(there, names, self._target.principal):
            by_name.setdefault(rule.name, []).append(rule)
        for name, rules in by_name.items():
            self._problems.put(
                "standby_writable",
                name,
                None,
                f"{self._link.id.target} is a standby, but there is a rule: {'; '.join(map(str, rules))}",
                f"Remove it on {self._link.id.target} before somebody writes there; at the switch drkit puts the "
                f"rules of {self._link.id.source}",
                halted=False,
            )
        for name in self._shown - set(by_name):
            self._problems.settle(name, kinds=_WRITABLE)
        self._shown = set(by_name)
