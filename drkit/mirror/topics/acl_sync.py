"""Keeps the source's ACLs on the target, as the link's `acls` says (`drkit.model.topics.acls` decides).

ACLs put now, and those to put at the switch, are noted in the store first: the failover's switch
(`drkit.failover.stages.promote_topics`) uses only the notes, because the source may be gone then. An ACL that the
source no longer has is removed after several looks have missed it, if none of its brokers has it and it was deleted
there (`source_growth`). A source that is formatted, or restored from an older copy of its disks, lacks ACLs, too: what
the target has of them stays, and keeps clients in (or out) after a failover, until an operator decides. What was
removed stays noted: a target that is set back has it again, and the source would never show that it is one too many.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.mirror.health.problems import Problems
from drkit.mirror.topics.source_growth import SourceGrowth
from drkit.mirror.topics.topic_snapshot import TopicSnapshot
from drkit.model.errors import DrkitError, Unreachable
from drkit.model.link_state import ACKNOWLEDGED, ACL_REMOVAL_HELD, STANDBY_WRITABLE, WHOLE_LINK
from drkit.model.topic_policy import AclMode
from drkit.model.topics.acls import (
    ACL_NOTES,
    REMOVED_ACL_NOTES,
    Acl,
    AclRole,
    Changes,
    carried,
    changes,
    outdone,
    own_principals,
    patterned,
    roles,
    still_carried,
    writers,
)
from drkit.model.topology import Link, LinkId
from drkit.model.wording import and_more, counted
from drkit.store.api import Store
from drkit.store.link_notes import fence_rules, noted_rules, removed_rules, returned_rules

log = logging.getLogger(__name__)

SECONDS = 5.0
"""Time between looks."""
MISSES = 3
"""How many looks must miss an ACL before it is removed."""
_UNAVAILABLE = frozenset({"acls_unavailable"})
_HELD = frozenset({ACL_REMOVAL_HELD})
_SHOWN = 10
_REFUSED = frozenset({"acl_refused"})


class AclSync:
    """Keeps the target's ACLs in step. Not thread-safe.

    Args:
        link: coverage, names, and `acls` (not off).
        source: the cluster whose ACLs are read.
        target: the cluster where they are put.
        store: groups of the link, and the notes.
        problems: where facts for an operator go.
        growth: what the source took, look by look.
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
        growth: SourceGrowth,
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
        self._own = own_principals(source.principal, target.principal)
        self._growth = growth

    def sync(self, look: TopicSnapshot) -> None:
        """Bring the target's ACLs in step with those of the source at this look, at most every `SECONDS`. A cluster
        that doesn't answer is asked again then."""
        if self._clock() - self._looked_at < SECONDS:
            return
        self._looked_at = self._clock()
        try:
            self._bring_in_step(look)
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

    def _bring_in_step(self, look: TopicSnapshot) -> None:
        fences = fence_rules(self._store, self._links, self._link.id.source)
        theirs, there = self._source.acls() - fences, self._target.acls()
        noted = noted_rules(self._store, self._link.id)
        self._problems.settle(WHOLE_LINK, kinds=_UNAVAILABLE)
        # of a topic that drkit isn't shown, or that is gone on the source and stays on the target, the ACLs stay, too
        topics = {*look.source, *filter(self._link.mirrors_topic, look.states)}
        groups = {p.group for p in self._store.group_positions(self._link.id)} if patterned(theirs) else set()

        def follow(rules: Collection[Acl]) -> dict[Acl, AclRole]:
            return roles(carried(rules, self._link, topics, groups, self._own), self._link.acls)

        wanted = follow(theirs)
        self._growth.saw_rules({rule.key for rule in wanted}, {rule.key for rule in noted})
        removed = removed_rules(self._store, self._link.id)
        self._store.forget_notes(self._link.id, REMOVED_ACL_NOTES, [rule.key for rule in removed & wanted.keys()])
        again = returned_rules(self._store, self._link, self._links, there, self._own) - wanted.keys()
        todo = self._patiently(changes(wanted, noted, there), wanted)
        shown: set[Acl] = set()
        if going := (todo.remove | todo.forget) - wanted.keys():  # as one broker says, which may lag
            try:  # before anything shows that they were deleted: whoever lacks them is to be who had them
                shown = going & follow(frozenset().union(*self._source.acls_by_broker().values()) - fences).keys()
            except Unreachable as error:
                log.info("%s: no access rule is removed now: %s", self._link.id, error.what)
                shown = going
        empty = all(rule.principal in self._own for rule in theirs)
        todo = self._without_held(todo, wanted, again, look, empty=empty)
        todo = replace(todo, remove=todo.remove - shown, forget=todo.forget - shown)
        self._apply(todo)
        self._show_writers(there - todo.remove if self._link.acls is AclMode.STANDBY else (), topics)

    def _without_held(
        self, todo: Changes, wanted: Mapping[Acl, AclRole], again: Collection[Acl], look: TopicSnapshot, *, empty: bool
    ) -> Changes:
        """Drop removals of ACLs that the source may have lost.

        Args:
            todo: all changes.
            wanted: each ACL's role.
            again: ACLs that drkit removed from the target, where they are again; only an operator knows why.
            look: the source's topics.
            empty: whether the source has no ACLs but drkit's own.
        """
        missing = {rule for rule in todo.forget if rule not in wanted}
        now = [rule for rule, role in wanted.items() if role is not AclRole.DUE]
        held = {rule for rule in missing if still_carried(rule, self._link, self._own) and not outdone(rule, now)}
        (source, target), parted = (self._link.id.source, self._link.id.target), self._problems.parted()
        if parted:
            why = f"{and_more([str(tp) for tp in parted])} may hold other records there than were mirrored"
        elif empty:
            why = f"{source} has no rules any more"
        else:
            keys = {rule.key: rule.key for rule in held}
            held -= {Acl.parse(key) for key in self._growth.shows_deletion(keys, look.source)}
            why = (
                f"nothing shows that they were deleted (drkit believes that where {source} still holds records that a "
                "topic took while this mirror saw the rules there, and has had the same active controller since; and "
                "where a broker has run, and this mirror's connection to it has held, since before those records came)"
                f"{self._growth.blind}"
            )
        acknowledged = self._note_held({*held, *again}, {*self._missed, *again})
        held -= acknowledged
        returned = set(again) - acknowledged
        said = []
        if held:
            said.append(
                f"{source} lacks {_told(held)} that drkit put on {target}, or notes for the switch; there they stay "
                f"for now: {why}, so {source} may have been formatted, or restored from an older copy of its disks"
            )
        if returned:
            said.append(
                f"{target} has again {_told(returned)} that drkit removed when {source} had them no more: {target} may "
                "have been restored from an older copy of its disks, or somebody put them there"
            )
        if said:
            self._problems.put(
                ACL_REMOVAL_HELD,
                WHOLE_LINK,
                None,
                "; ".join(said),
                f"What shall be in force, give to {source}. If they were deleted on purpose: `drkit link acknowledge "
                f"'{self._link.id}' {ACL_REMOVAL_HELD}` takes them from {target}, too. After a failover nothing takes "
                f"them from there: remove with kafka-acls.sh what shall not be in force; then that command clears this",
                halted=False,
            )
        elif not self._missed:
            self._problems.settle(WHOLE_LINK, kinds=_HELD)
        remove = (todo.remove - held) | (acknowledged & set(again))
        return replace(todo, remove=remove, forget=todo.forget - held)

    def _note_held(self, held: Collection[Acl], open_: Collection[Acl]) -> set[Acl]:
        """Note them before they are told; returns those that an operator acknowledged, also while no mirror ran. Who
        did so didn't mean the next one: of an ACL that is no longer in question (`open_`) nothing is noted any more."""
        noted = {Acl.parse(key): text for key, text in self._store.notes(self._link.id, ACL_REMOVAL_HELD).items()}
        over = noted.keys() - set(open_)
        if over:
            self._store.forget_notes(self._link.id, ACL_REMOVAL_HELD, [rule.key for rule in over])
        if new := set(held) - noted.keys():
            self._store.put_notes(self._link.id, ACL_REMOVAL_HELD, {rule.key: "" for rule in new})
        return {rule for rule, text in noted.items() if text == ACKNOWLEDGED} - over

    def _patiently(self, todo: Changes, wanted: Collection[Acl]) -> Changes:
        """Drop removals of ACLs that weren't missed often enough."""
        lost = {rule for rule in todo.forget if rule not in wanted}
        self._missed = {rule: self._missed.get(rule, 0) + 1 for rule in lost}
        early = {rule for rule, count in self._missed.items() if count < MISSES}
        if early:  # an operator who has acknowledged it has looked long enough
            noted = self._store.notes(self._link.id, ACL_REMOVAL_HELD).items()
            early -= {Acl.parse(key) for key, text in noted if text == ACKNOWLEDGED}
        return replace(todo, remove=todo.remove - early, forget=todo.forget - early)

    def _apply(self, todo: Changes) -> None:
        link = self._link.id
        if todo.note:
            self._store.put_notes(link, ACL_NOTES, {rule.key: role.value for rule, role in todo.note.items()})
        gone = {rule.key: "" for rule in todo.remove - todo.note_after.keys()}
        self._store.put_notes(link, REMOVED_ACL_NOTES, gone)  # before: one that was removed without it could come back
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
                STANDBY_WRITABLE,
                name,
                None,
                f"{self._link.id.target} is a standby, but there is a rule: {'; '.join(map(str, rules))}",
                f"Remove it on {self._link.id.target} before somebody writes there; at the switch drkit puts the "
                f"rules of {self._link.id.source}",
                halted=False,
            )
        for name in self._problems.topics_with(STANDBY_WRITABLE) - by_name.keys():  # also those of an earlier runtime
            self._problems.settle(name, kinds=frozenset({STANDBY_WRITABLE}))


def _told(rules: Collection[Acl]) -> str:
    named = and_more([f"'{rule}'" for rule in sorted(rules)], shown=_SHOWN)
    return f"{counted(len(rules), 'rule')} ({named})"
