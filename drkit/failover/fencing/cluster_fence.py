"""The fence of one cluster against the clients of a link: closing it, proving it, opening it.

Every broker must refuse an empty Produce request (`kafka/admin/write_block.py`), and log ends must not move
(`quiescence.py`).

ACLs are noted in the store before they are created, so that exactly these are removed later, and nobody else's. Every
decision takes a new epoch. Before a change the newest record must be this run's own, and after the change it is
read again: a run that acted late finds a newer record and reverts its change.

An ACL names a topic. A link's topics are patterns, and a new topic may match at any time (brokers create topics if
`auto.create.topics.enable` is on). Until an ACL names it, clients can write to it: such topics are found and fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from drkit.config.schema.config import FenceConfig
from drkit.directory.command import run_bounded
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.fencing.deny_rules import (
    closing_rules,
    default_allow_rules,
    denied_names,
    describe_unproven,
    for_everybody,
    has_rule,
    probe_rules,
    rules_beside_mark,
    standby_rules,
    writing_denied,
)
from drkit.failover.fencing.quiescence import settled_ends
from drkit.failover.fencing.write_block import let_writes_in
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.write_block import WriteProbe
from drkit.model.clock import Deadline, now
from drkit.model.errors import (
    ConfigError,
    DrkitError,
    NoAuthorizer,
    NotShown,
    PartlyDone,
    Refused,
    Unreachable,
    answered,
)
from drkit.model.runs import (
    FENCES,
    FenceMethod,
    FenceRecord,
    FenceState,
    is_mark,
    mark_of,
    newest,
    older,
    record_text,
)
from drkit.model.topics.acls import Acl, fence_rules_kind, others_rules_kind, topics_denied
from drkit.model.topology import Link, LinkId, TopicPartition, is_canary
from drkit.model.wording import and_more, counted
from drkit.store.api import Store
from drkit.store.fences_beside import (
    FenceBeside,
    command_fences,
    fences_beside,
    lift_of,
    names_closed,
    noted_rules_of,
    rules_wanted,
)
from drkit.store.link_notes import check_source_cluster


class FenceContext(Protocol):
    """Dependencies of a fence: the context of a run's stage, or that of `drkit fence`."""

    @property
    def estate(self) -> ClusterContext:
        """Clusters and store."""

    @property
    def link(self) -> Link:
        """The link, in either direction."""

    @property
    def run(self) -> str:
        """The run."""

    @property
    def lease(self) -> RunLease:
        """The run's lease."""

    @property
    def say(self) -> Callable[[str], None]:
        """Reports progress."""

    def wait(self, done: Callable[[], bool], seconds: float, /) -> bool:
        """Poll until `done`, for at most `seconds`; returns whether it came true."""


@dataclass(frozen=True, slots=True)
class FenceProof:
    """The result of closing a fence. `proven`: nobody can write; `reason`: what was shown, or why it was not.

    `ends`: log ends that didn't move behind the closed fence, by `topic:partition`; None: they moved, or are unknown.
    `impossible`: why the cluster can't be fenced until somebody corrects that. `denied_by`: of a lifted fence, other
    ACLs that still deny everybody writing.
    """

    proven: bool
    reason: str
    epoch: int | None = None
    ends: dict[str, int] | None = None
    impossible: DrkitError | None = None
    denied_by: tuple[str, ...] = ()


class FenceSuperseded(Refused):
    """A newer epoch has decided about the fence."""


def superseded(found: FenceRecord | None, record: FenceRecord) -> FenceSuperseded:
    """The error for the run of `record` where `found` was decided later (None: the record is gone)."""
    who = "another process" if found is None else f"run {found.run} (epoch {found.epoch})"
    return FenceSuperseded(
        f"{who} has decided about the fence of {record.cluster} since: run {record.run} (epoch {record.epoch}) is late",
        meaning="Its change of the fence was not made, or was reverted",
        remedy="`drkit runs` shows which run acts on the link now",
    )


PROPAGATION_SECONDS = 10.0
"""How long brokers may take to apply a created or removed ACL, and a command to take effect."""
_AT_ONCE = 2.0
_MIRROR_GROUPS = "drkit.mirror."


def fence_method(estate: ClusterContext, cluster: str) -> tuple[FenceMethod, str]:
    """How a cluster can be fenced, and, if it can't, why.

    Raises:
        Unreachable: it doesn't answer.
    """
    if estate.config.clusters[cluster].fence.command is not None:
        return FenceMethod.COMMAND, ""
    admin = estate.admin(cluster, may_be_gone=True)
    try:
        admin.acls()
        allowed = admin.allowed_on_cluster()
    except Refused as error:
        return FenceMethod.NONE, error.what
    if allowed is not None and "alter" not in allowed:
        return FenceMethod.NONE, f"drkit lacks Alter on cluster {cluster}, which `drkit acls --command fence` prints"
    return FenceMethod.ACL, ""


def _no_method(cluster: str, why: str) -> Refused:
    return Refused(
        f"{cluster} can't be fenced: {why}",
        meaning=f"Nothing was changed; records that clients write to {cluster} reach no other cluster",
        remedy=f"Give it an authorizer, and drkit the rights that `drkit acls --command fence` prints; or configure a "
        f"command in [clusters.{cluster}.fence] (docs/fencing.md). Until then stop its producers yourself",
    )


def fence_record(store: Store, link: LinkId, cluster: str) -> FenceRecord | None:
    """The newest decision about a cluster's fence for a configured link."""
    return newest(store.notes(link, FENCES), cluster)


class ClusterFence:
    """The fence of one cluster.

    Args:
        acting: its dependencies; its link has the cluster on either side.
        cluster: its alias.
    """

    def __init__(self, acting: FenceContext, cluster: str) -> None:
        self._acting = acting
        self._estate = acting.estate
        self._store = acting.estate.store
        self._cluster = cluster
        self._config = acting.estate.config.clusters[cluster]
        configured = {each.link().id for each in acting.estate.config.links}
        self._link = acting.link.id if acting.link.id in configured else acting.link.id.reversed()

    # -- closing -----------------------------------------------------------------------------------

    def close(self) -> FenceProof:
        """Close the cluster, which is the source of the link, to the link's clients, and prove it.

        Raises:
            Refused: a newer run has decided otherwise.
            Unreachable: the store doesn't answer.
        """
        try:
            method, why = fence_method(self._estate, self._cluster)
            if method is not FenceMethod.COMMAND:  # ACLs on another cluster would keep nobody out of this one
                check_source_cluster(self._store, self._acting.link.id, self._admin().cluster_id())
            if method is FenceMethod.NONE:
                reason = (
                    f"{self._cluster} answers and drkit can't deny its writes ({why}); records that are written there "
                    "now are lost"
                )
                return FenceProof(proven=False, reason=reason, impossible=_no_method(self._cluster, why))
        except (Unreachable, ConfigError) as error:
            self._estate.reach(self._cluster).gone = not answered(error)
            found = fence_record(self._store, self._link, self._cluster)
            self._claim(FenceState.PENDING, found.method if found is not None and found.stands else FenceMethod.NONE)
            lasts = error if isinstance(error, ConfigError | NotShown) else None
            return FenceProof(proven=False, reason=error.what, impossible=lasts)
        record = self._claim(FenceState.CLOSING, method)
        try:
            if method is FenceMethod.COMMAND:
                record = self._seen_let_in(record)
            shown = self._by_acl(record) if method is FenceMethod.ACL else self._by_command(record)
            ends = settled_ends(self._acting, self._acting.link)
        except (PartlyDone, FenceSuperseded):
            raise
        except DrkitError as error:
            if method is FenceMethod.ACL and not self._ours():
                reason = f"no rule of drkit's is on {self._cluster}, so its clients may write: {error.what}"
                self._keep(replace(record, state=FenceState.OPEN, detail=reason))
                return FenceProof(proven=False, reason=reason, epoch=record.epoch)
            reason = f"{describe_unproven(method, self._cluster)}, but it is not shown: {error.what}"
            self._keep(replace(record, state=FenceState.CLOSED, detail=reason))
            return FenceProof(proven=False, reason=reason, epoch=record.epoch)
        reason = f"{shown}; {len(ends)} log ends did not move"
        self._keep(replace(record, state=FenceState.CLOSED, proven=True, detail=reason))
        return FenceProof(proven=True, reason=reason, epoch=record.epoch, ends=ends)

    def _by_acl(self, record: FenceRecord) -> str:
        admin = self._admin()
        link = self._acting.link
        ours = self._ours()
        seen = self._topics()
        # topics that our own ACL hides from drkit stay closed
        topics = sorted({*seen, *(name for name in denied_names(ours, "topic") if link.covers_topic(name))})
        listed = set(self._estate.groups(self._cluster).list_reachable_groups().groups)
        listed |= {position.group for position in self._store.group_positions(link.id)} | denied_names(ours, "group")
        groups = [name for name in listed if link.covers_group(name) and not name.startswith(_MIRROR_GROUPS)]
        unreadable = self._unreadable(groups)
        wanted = closing_rules(topics, groups)
        there, elsewhere = admin.acls(), self._wanted_elsewhere()
        others = there - ours - elsewhere  # ACLs that no fence of drkit has put
        also = default_allow_rules(topics, groups, others)
        if also and (also <= ours or self._open_by_default(record, others)):
            wanted |= also
        wanted |= {mark_of(link)}
        failures = self._apply(record, put=wanted - there, ours=wanted & (ours | elsewhere), remove=ours - wanted)
        if failures:
            rule, why = next(iter(failures.items()))
            raise DrkitError(f"{len(failures)} of {len(wanted)} rules were refused, e.g. '{rule}': {why}")
        self._note_others(record, wanted & others)
        self._everywhere(wanted)
        hidden = {*seen} - {*self._topics()} | (self._unreadable(groups) - unreadable)
        if hidden:
            raise DrkitError(
                f"drkit itself doesn't see {len(hidden)} topics and groups any more, e.g. {min(hidden)}",
                remedy="Grant drkit's principal DESCRIBE and READ on the link's topics, DESCRIBE on its groups",
            )
        shown = self._denied(topics, _AT_ONCE)
        return (
            f"writes to {counted(len(topics), 'topic')} are denied{shown}, {counted(len(groups), 'group')} can't read"
        )

    def _note_others(self, record: FenceRecord, rules: frozenset[Acl]) -> None:
        """Note what somebody else's ACLs have closed: the fence needs no ACL of its own there, but names it."""
        kind = others_rules_kind(self._cluster)
        keys = {rule.key: str(record.epoch) for rule in rules}
        self._store.forget_notes(self._link, kind, sorted(self._store.notes(self._link, kind).keys() - keys))
        self._store.put_notes(self._link, kind, keys)

    def _open_by_default(self, record: FenceRecord, there: frozenset[Acl]) -> bool:
        """Whether the brokers allow access without ACLs (`allow.everyone.if.no.acl.found`), as far as is known."""
        for rule in probe_rules(record.run):
            if has_rule(rule.resource, rule.name, there) or not self._lets_see(rule):
                continue
            failures = self._apply(record, put=frozenset({rule}), ours=frozenset(), remove=frozenset())
            if failures:
                raise DrkitError(f"the rule '{rule}' was refused: {failures[rule]}")
            self._everywhere(frozenset({rule}))
            still = self._lets_see(rule)
            self._remove(record, frozenset({rule}), forget=frozenset({rule}))
            if not still:
                return True
        return False

    def _lets_see(self, rule: Acl) -> bool:
        """Whether an ordinary client (for groups: drkit) may see the ACL's resource, or that it doesn't exist."""
        if rule.resource == "group":
            return not self._unreadable([rule.name])
        with ClusterAdmin(
            self._cluster, self._config.writer(), timeout_seconds=self._estate.timeout_seconds
        ) as ordinary:
            try:
                ordinary.topics([rule.name])
            except Refused:
                return False
        return True

    def _unreadable(self, groups: Collection[str]) -> set[str]:
        """Groups whose committed offsets the cluster doesn't show to drkit, or whose coordinator is down."""
        try:
            return set(self._estate.groups(self._cluster).fetch(groups).failures)
        except NotShown:
            raise
        except Unreachable:  # of every group: an ACL keeps them out all the same
            return set(groups)

    def _everywhere(self, wanted: frozenset[Acl]) -> None:
        """Wait until every broker applies all ACLs."""
        behind: set[int] = set()

        def done() -> bool:
            behind.clear()
            behind.update(node for node, rules in self._admin().acls_by_broker().items() if wanted - rules)
            return not behind

        if not self._acting.wait(done, PROPAGATION_SECONDS):
            raise DrkitError(f"brokers {sorted(behind)} don't apply all ACLs yet")

    def _denied(self, topics: Collection[str], seconds: float) -> str:
        """Show that no broker accepts a record of an ordinary client, within that many seconds; in words."""
        if not topics:
            return ""
        with self._probe() as probe:
            found: dict[int, frozenset[str]] = {}

            def done() -> bool:
                found.clear()
                found.update(probe.may_write(topics))
                return not any(found.values())

            if not self._acting.wait(done, seconds):
                node, writable = next((node, names) for node, names in found.items() if names)
                raise DrkitError(
                    f"{probe.principal} still may write {min(writable)} through broker {node}: is it a super user, "
                    f"whom no ACL stops? Give an ordinary writer in [clusters.{self._cluster}.fence.client]"
                )
            return f", shown to {probe.principal} by {counted(len(found), 'broker')}"

    def _seen_let_in(self, record: FenceRecord) -> FenceRecord:
        """The record with the client that is let in before the command runs; kept, as an interruption may follow.

        Where the command keeps clients out for another link already, it is the client that was let in before that.
        """
        with self._probe() as probe:
            if record.let_in == probe.principal:  # in an earlier attempt
                return record
            earlier = command_fences(self._store, self._other_links(), self._cluster).values()
            if any(each.proven and each.let_in == probe.principal for each in earlier):
                record = replace(record, let_in=probe.principal)
                self._keep(record)
                return record
            try:
                if not any(probe.may_write(self._topics()).values()):
                    return record
            except (ConfigError, Unreachable) as error:
                if self._is_of_the_cluster(error):
                    raise
                return record
            record = replace(record, let_in=probe.principal)
        self._keep(record)
        return record

    def _by_command(self, record: FenceRecord) -> str:
        topics = self._topics_behind_command()
        with self._probe() as probe:
            self._still_mine(record)
            run_command(self._config.fence, "fence", record, self._link, self._acting.say)
            denied = ""
            try:
                denied = self._denied(topics, PROPAGATION_SECONDS)
            except (ConfigError, Unreachable) as error:
                if self._is_of_the_cluster(error):
                    raise
                denied = f"{probe.principal} is no longer allowed ({error.what})"
        self._refuse_if_late(record, frozenset(), frozenset())
        if record.let_in != probe.principal:
            raise DrkitError(f"{probe.principal} was already denied before, so its denial proves nothing")
        return f"the command keeps clients out: {denied.lstrip(', ')}"

    def _is_of_the_cluster(self, error: DrkitError) -> bool:
        """Whether an error of the probe says nothing about a listener that the command closes."""
        return self._config.fence.bootstrap_servers is None and isinstance(error, Unreachable)

    # -- opening -----------------------------------------------------------------------------------

    def open(self, *, thoroughly: bool = False) -> str:
        """Remove what keeps clients out, and nothing else; returns what was done, "" for nothing.

        `thoroughly`: also look at topics whose writes a run has blocked and that the store doesn't know of.

        Raises:
            Refused: a newer run has decided otherwise.
            DrkitError: it can't be removed.
        """
        opened = (self._open_noted(), self._open_marked())  # first: it doesn't depend on the right to read settings
        also = self._topics() if thoroughly else ()
        blocked = let_writes_in(self._estate, self._link, self._cluster, also)
        return "; ".join(filter(None, (*opened, blocked)))

    def closed_for_others(self) -> dict[LinkId, FenceBeside]:
        """The fences of other links that keep the clients of this one out, too, by link."""
        try:
            there = self._admin().acls()
        except (Refused, Unreachable):
            there = None  # the cluster has no ACLs, or doesn't show them
        return fences_beside(self._store, self._acting.link, self._other_links(), self._cluster, there)

    def closed_before(self) -> frozenset[Acl]:
        """ACLs of others that closed topics or groups already when the fence was put up."""
        return frozenset(Acl.parse(key) for key in self._store.notes(self._link, others_rules_kind(self._cluster)))

    def denied_by_others(self, expected: Collection[Acl]) -> tuple[list[str], list[str]]:
        """ACLs of an open cluster, besides the `expected` ones and those of drkit's fences, that still deny writing to
        some of the link's topics: those that deny it to everybody, and those that deny it to single principals.

        None where the cluster has no ACLs, or doesn't show them.
        """
        try:
            there = self._admin().acls() - self._ours() - self._wanted_elsewhere()
            found = writing_denied(there, self._topics()) - frozenset(expected)
        except (Refused, Unreachable):
            return [], []
        everybody = for_everybody(found)
        return sorted(map(str, everybody)), sorted(map(str, found - everybody))

    def _open_marked(self) -> str:
        """Remove a fence of which only its mark on the cluster is left: the store has lost its notes."""
        try:
            there = self._admin().acls()
        except (Refused, Unreachable):
            return ""  # the cluster has no ACLs, or doesn't show them: `drkit status` shows a mark later
        link, mark = self._acting.link, mark_of(self._acting.link)
        if mark not in there:
            return ""
        record = self._claim(FenceState.OPENING, FenceMethod.ACL)
        found = rules_beside_mark(there, link.covers_topic, link.covers_group)
        found -= self.closed_before() | self._wanted_elsewhere()
        self._remove(record, found | {mark}, forget=found | {mark})
        done = f"a fence of {self._cluster} that the store didn't know is lifted: {counted(len(found), 'rule')} removed"
        self._keep(replace(record, state=FenceState.OPEN, detail=done))
        return done

    def _open_noted(self) -> str:
        before = fence_record(self._store, self._link, self._cluster)
        if before is None or before.state is FenceState.OPEN:
            return self._stays_closed()
        record = self._claim(FenceState.OPENING, before.method)
        if not before.stands:
            self._keep(replace(record, state=FenceState.OPEN))
            return self._stays_closed()
        if before.method is FenceMethod.COMMAND:
            done = self._lift_command(record)
        else:
            ours = self._ours()
            remove = ours - self._wanted_elsewhere()
            there = {rule for rule in remove & self._admin().acls() if not is_mark(rule)}
            self._remove(record, remove, forget=ours)
            gone = f"{counted(len(there), 'rule')} removed" if there else "none of its rules was left"
            done = "; ".join(filter(None, (f"the fence of {self._cluster} is lifted: {gone}", self._stays_closed())))
        self._note_others(record, frozenset())
        self._keep(replace(record, state=FenceState.OPEN, detail=done))
        return done

    def _lift_command(self, record: FenceRecord) -> str:
        """Run the command that opens the cluster, unless another link's fence needs it closed; in words."""
        others = self._commanded_for()
        if others:
            self._keep(replace(record, state=FenceState.OPEN))
            others = self._commanded_for()  # they may have been opened meanwhile, and have seen this one's
        if not others:
            self._keep(record)
            self._still_mine(record)
            run_command(self._config.fence, "unfence", record, self._link, self._acting.say)
            self._refuse_if_late(record, frozenset(), frozenset())
            others = self._commanded_for()
            if others:  # meanwhile
                run_command(self._config.fence, "fence", record, self._link, self._acting.say)
        return self._stays_closed() or f"the fence of {self._cluster} is lifted by its command"

    def _commanded_for(self) -> list[LinkId]:
        """The other links for whose sake the cluster's command keeps the clients of all links out."""
        return list(command_fences(self._store, self._other_links(), self._cluster))

    def _stays_closed(self) -> str:
        """What other links' fences keep closed to this one's clients, in words; "" for nothing."""
        return describe_closed(self._cluster, self.closed_for_others())

    def admit_mirror(self) -> str:
        """Let drkit itself, and nobody else, write to a closed cluster; returns what was done, "" for nothing.

        Raises:
            Refused: a newer run has decided otherwise.
            DrkitError: it can't be done.
        """
        before = fence_record(self._store, self._link, self._cluster)
        if before is None or not before.stands or (before.state is FenceState.STANDBY and before.detail):
            return ""
        if before.method is FenceMethod.COMMAND:
            return self._admit_past_command(before)
        closed = for_everybody(self._ours())
        topics = sorted(rule.name for rule in closed if rule.resource == "topic")
        with WriteProbe(self._cluster, self._config, timeout_seconds=self._estate.timeout_seconds) as probe:
            passes = bool(topics) and all(probe.may_write(topics[:1]).values())
        if not passes:
            self._refuse_if_shared()
        record = self._claim(FenceState.STANDBY, before.method)
        if passes:
            done, kept_closed = self._said_of(closed)
        else:
            admin = self._admin()
            there = admin.acls()
            stand_in, gap = standby_rules(closed, there, admin.principal)
            failures = self._apply(record, put=stand_in - there, ours=stand_in & self._ours(), remove=frozenset())
            if failures:
                rule, why = next(iter(failures.items()))
                raise DrkitError(f"{self._cluster} refuses the rule '{rule}': {why}", remedy="Remove the cause named")
            self._remove(record, closed - self._wanted_elsewhere(), forget=closed)
            open_to = f"; {gap}" if gap else ""
            others = len({rule.principal for rule in self._ours() if rule.permission == "deny" and not is_mark(rule)})
            kept_closed = others > 0 and not gap
            kept = f"stays closed to {counted(others, 'other writer')}" if others else "can't be kept closed"
            done = f"{self._cluster} {kept}{open_to}"
        self._keep(replace(record, detail=done, proven=before.proven and kept_closed))
        return done

    def _said_of(self, rules: frozenset[Acl]) -> tuple[str, bool]:
        """What is said of a cluster where drkit may write, and whether it is shown to be closed: it may lack some of
        these ACLs, or be another one than was closed."""
        try:
            gone = len(rules - self._admin().acls())
        except NoAuthorizer:
            gone = len(rules)
        except Refused as error:
            return f"whether {self._cluster} is closed to clients isn't shown: {error.what}", False
        if not gone:
            return f"{self._cluster} stays closed to all but super users, of whom drkit is one", True
        are = "is" if gone == 1 else "are"
        what = f"{self._cluster} is open to clients: {counted(gone, 'rule')} of its fence {are} gone"
        return f"{what}, or another cluster answers there now", False

    def _is_denied(self, topics: Collection[str]) -> bool | None:
        """Whether an ordinary client is turned away, now; None: that isn't shown."""
        try:
            with self._probe() as probe:
                return not any(probe.may_write(topics).values())
        except (ConfigError, Unreachable) as error:
            return None if self._is_of_the_cluster(error) else True

    def _refuse_if_shared(self) -> None:
        """Raise `Refused` if another link's fence denies the mirror, too, writing to this link's topics: its ACLs stay,
        and behind them a mirror that is no super user writes nothing."""
        others = {
            link: replace(each, denied=topics)
            for link, each in self.closed_for_others().items()
            if (topics := frozenset(rule for rule in for_everybody(each.denied) if rule.resource == "topic"))
        }
        if others:
            raise Refused(
                describe_closed(self._cluster, others),
                meaning=f"The mirror can't write to {self._cluster}: drkit is no super user there",
                remedy=lift_of(min(others, key=str), self._cluster),
            )

    def _admit_past_command(self, before: FenceRecord) -> str:
        """As `admit_mirror`, of a cluster that its command closes: it can make no exception, but need not concern
        drkit."""
        topics = self._topics() or ["drkit"]  # brokers check the right first, then whether there is such a topic
        with WriteProbe(self._cluster, self._config, timeout_seconds=self._estate.timeout_seconds) as probe:
            passes = all(names >= {topics[0]} for names in probe.may_write(topics[:1]).values())
        others = self._commanded_for()
        if passes:
            record = self._claim(FenceState.STANDBY, before.method)
            denied = self._is_denied(topics)
            done = f"{self._cluster} stays closed by its command, which lets drkit itself write"
            if before.proven and denied is None:
                done = f"whether {self._cluster} is closed to clients isn't shown: an ordinary one gets no answer there"
            elif before.proven and not denied:
                done = (
                    f"{self._cluster} is open to clients: its command doesn't keep them out any more, or another "
                    "cluster answers there now"
                )
            self._keep(replace(record, detail=done, proven=before.proven and bool(denied)))
            return done
        if others:
            raise Refused(
                f"the command that closes {self._cluster} keeps drkit itself out, too, and the fence of "
                f"{and_more([str(link) for link in others])} needs it",
                meaning=f"The mirror can't write to {self._cluster}",
                remedy=f"Have the command of [clusters.{self._cluster}.fence] let drkit itself in",
            )
        return f"{self.open()} (it can make no exception for the mirror)"

    # -- acting, in the order in which an interruption does no harm ------------------------------------

    def _apply(
        self, record: FenceRecord, *, put: frozenset[Acl], ours: frozenset[Acl], remove: frozenset[Acl]
    ) -> dict[Acl, str]:
        """Note, put, remove, forget; returns the reason for each refused ACL."""
        self._still_mine(record)
        kind = fence_rules_kind(self._cluster)
        self._store.put_notes(self._link, kind, {rule.key: str(record.epoch) for rule in put | ours})
        try:
            failures = self._admin().create_acls(put)
        except Refused:  # denied as a whole: missing ACLs aren't ours
            if not any(put & found for found in self._admin().acls_by_broker().values()):
                self._store.forget_notes(self._link, kind, [rule.key for rule in put - ours])
            raise
        self._store.forget_notes(self._link, kind, [rule.key for rule in failures])
        self._refuse_if_late(record, put - set(failures), frozenset())
        if remove and not failures:
            self._remove(record, remove - self._wanted_elsewhere(), forget=remove)
        return failures

    def _remove(self, record: FenceRecord, rules: frozenset[Acl], *, forget: frozenset[Acl]) -> None:
        """Remove ACLs, wait until no broker applies them, forget them.

        Raises:
            DrkitError: some are still there.
        """
        self._still_mine(record)
        kept = self._admin().delete_acls(rules)
        if kept:
            rule, why = next(iter(kept.items()))
            raise DrkitError(
                f"{self._cluster} keeps {len(kept)} rules of the fence, e.g. '{rule}': {why}",
                meaning="Clients still can't write or read there",
                remedy="Remove the cause named",
            )
        self._refuse_if_late(record, frozenset(), rules)
        if not self._acting.wait(
            lambda: not any(rules & found for found in self._admin().acls_by_broker().values()), PROPAGATION_SECONDS
        ):
            raise DrkitError(f"brokers of {self._cluster} still apply removed rules", remedy="Check these brokers")
        self._store.forget_notes(self._link, fence_rules_kind(self._cluster), [rule.key for rule in forget])

    def _claim(self, state: FenceState, method: FenceMethod) -> FenceRecord:
        """Decide again, in a new epoch."""
        self._acting.lease.check()
        before = fence_record(self._store, self._link, self._cluster)
        let_in = before.let_in if before is not None and before.stands and before.method is method else ""
        epoch = self._store.next_generation(self._link)
        record = FenceRecord(self._cluster, epoch, self._acting.run, state, method, now(), let_in=let_in)
        self._keep(record)
        return record

    def _keep(self, record: FenceRecord) -> None:
        self._store.put_notes(self._link, FENCES, {record.name: record_text(record)})
        self._store.forget_notes(self._link, FENCES, older(self._store.notes(self._link, FENCES), record))

    def _still_mine(self, record: FenceRecord) -> None:
        """Whether nobody has decided again since."""
        self._acting.lease.check()
        found = fence_record(self._store, self._link, self._cluster)
        if found is None or found.epoch > record.epoch:
            raise superseded(found, record)

    def _refuse_if_late(self, record: FenceRecord, put: frozenset[Acl], removed: frozenset[Acl]) -> None:
        """Check after acting; if somebody has decided again meanwhile, revert this change."""
        found = fence_record(self._store, self._link, self._cluster)
        if found is not None and found.epoch <= record.epoch:
            return
        if found is not None and found.method is FenceMethod.ACL:
            kind = fence_rules_kind(self._cluster)
            if found.state in {FenceState.CLOSING, FenceState.CLOSED}:
                self._admin().create_acls(removed)
                self._store.put_notes(self._link, kind, {rule.key: str(found.epoch) for rule in removed | put})
            else:
                self._admin().delete_acls(put)
                self._store.forget_notes(self._link, kind, [rule.key for rule in put])
        raise superseded(found, record)

    # -- looking -----------------------------------------------------------------------------------

    def _admin(self) -> ClusterAdmin:
        return self._estate.admin(self._cluster)

    def _probe(self) -> WriteProbe:
        return WriteProbe(self._cluster, self._config.writer(), timeout_seconds=self._estate.timeout_seconds)

    def _topics(self) -> list[str]:
        link = self._acting.link
        return [name for name in self._admin().topics() if link.covers_topic(name) and not is_canary(name)]

    def _topics_behind_command(self) -> list[str]:
        """The topics of all links for which the command closes the cluster: the client that is asked may have been let
        in to another link's alone."""
        fenced = command_fences(self._store, self._other_links(), self._cluster)
        others = [each.link() for each in self._estate.config.links if each.link().id in fenced]
        links = [link if link.id.source == self._cluster else link.reversed() for link in others]
        links.append(self._acting.link)
        topics = self._admin().topics()
        return [name for name in topics if not is_canary(name) and any(link.covers_topic(name) for link in links)]

    def _ours(self) -> frozenset[Acl]:
        return noted_rules_of(self._store, self._link, self._cluster)

    def _other_links(self) -> list[LinkId]:
        configured = (each.link().id for each in self._estate.config.links)
        return [link for link in configured if link != self._link]

    def _wanted_elsewhere(self) -> frozenset[Acl]:
        """ACLs that a fence of another link needs on this cluster."""
        return rules_wanted(self._store, self._other_links(), self._cluster)


def describe_closed(cluster: str, others: Mapping[LinkId, FenceBeside]) -> str:
    """What other links' fences keep closed, and for which of them; "" for nothing."""
    words = []
    commanded = [str(link) for link, each in others.items() if each.by_command]
    if commanded:
        words.append(f"{cluster} stays closed by its command, which the fence of {and_more(commanded)} needs")
    denied = {link: each for link, each in others.items() if not each.by_command}
    if denied:
        links = and_more(list(map(str, denied)))
        words.append(f"the fence of {links} needs closed on {cluster}, too: {names_closed(denied.values())}")
    return "; ".join(words)


def run_command(fence: FenceConfig, action: str, record: FenceRecord, link: LinkId, say: Callable[[str], None]) -> None:
    """Run the program for `fence` or `unfence` and wait for its end. Environment variables tell it what to do.

    Raises:
        DrkitError: it can't be started, didn't end in time, or ended with a code other than 0.
    """
    command = (fence.command if action == "fence" else fence.unfence) or ()
    given = {
        "DRKIT_ACTION": action,
        "DRKIT_CLUSTER": record.cluster,
        "DRKIT_LINK": str(link),
        "DRKIT_RUN": record.run,
        "DRKIT_EPOCH": str(record.epoch),
    }
    name = f"the {action} command of {record.cluster}"
    say(f"{name} runs")
    try:
        done = run_bounded(command, given, "", Deadline.after(fence.timeout_seconds))
    except Unreachable as error:
        raise DrkitError(f"{name}: {error.what}", remedy="Check what it did") from error
    except DrkitError as error:
        raise DrkitError(f"{name}: {error.what}", remedy="Correct it in the configuration") from error
    if done.code:
        raise DrkitError(
            f"{name} ended with {done.code}{f': {done.said}' if done.said else ''}", remedy="Check what it did"
        )


_SHOWN = 3


@dataclass(frozen=True, slots=True)
class TopicsOutsideFence:
    """Topics that a fence didn't cover, and the proof after closing them.

    `created`: after it, with so many `offsets` by then; `opened`: somebody had removed their rules.
    """

    created: tuple[str, ...]
    opened: tuple[str, ...]
    offsets: int
    proof: FenceProof

    @property
    def topics(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.created, *self.opened)

    def __str__(self) -> str:
        created = (
            f"created after the fence, and fenced since: {and_more(self.created, shown=_SHOWN)} "
            f"({counted(self.offsets, 'offset')} may exist there only)"
        )
        opened = f"opened by somebody behind the fence, and closed again: {and_more(self.opened, shown=_SHOWN)}"
        return "; ".join([*([created] if self.created else ()), *([opened] if self.opened else ())])


def topics_outside_fence(estate: ClusterContext, link: Link, cluster: str) -> tuple[str, ...]:
    """The link's topics on a cluster that its fence doesn't name, or whose rules somebody has removed, by their names
    there; () if no fence by ACLs is in place.

    Raises:
        Unreachable: the cluster or the store doesn't answer.
        Refused: the cluster doesn't show its ACLs.
    """
    record = fence_record(estate.store, link.id, cluster)
    if record is None or record.method is not FenceMethod.ACL or record.state is not FenceState.CLOSED:
        return ()
    admin = estate.admin(cluster)
    noted = _rules_noted(estate.store, link.id, cluster)
    standing = topics_denied(noted & {rule.key for rule in admin.acls()})
    found = set(admin.topics())
    absent = topics_denied(noted) - standing - found
    hidden: set[str] = set()
    if absent:  # a topic that drkit may not see any more exists all the same
        admin.topics(absent, denied=hidden)
    return tuple(sorted(n for n in found | hidden if link.covers_topic(n) and not is_canary(n) and n not in standing))


def _rules_noted(store: Store, link: LinkId, cluster: str) -> set[str]:
    """The keys of the ACLs that a fence consists of: drkit's own, and others' that had closed the same before."""
    kinds = fence_rules_kind(cluster), others_rules_kind(cluster)
    return {key for kind in kinds for key in store.notes(link, kind)}


def close_topics_outside(acting: FenceContext, cluster: str) -> TopicsOutsideFence | None:
    """Fence the topics that `topics_outside_fence` finds on the link's source, and prove the fence again; None if there
    are none.

    Raises:
        Unreachable: the cluster or the store doesn't answer.
        Refused: a newer run has decided otherwise, or the cluster doesn't show its ACLs.
    """
    topics = topics_outside_fence(acting.estate, acting.link, cluster)
    if not topics:
        return None
    named = topics_denied(_rules_noted(acting.estate.store, acting.link.id, cluster))
    created, opened = (tuple(n for n in topics if (n in named) is known) for known in (False, True))
    proof = ClusterFence(acting, cluster).close()
    admin = acting.estate.admin(cluster)
    there = admin.topics(created, denied=set())
    tps = [TopicPartition(name, n) for name, info in there.items() for n in range(info.partitions)]
    offsets = sum(admin.end_offsets(tps, committed=False).values()) if tps else 0
    return TopicsOutsideFence(created, opened, offsets, proof)
