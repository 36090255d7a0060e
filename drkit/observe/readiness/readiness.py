"""Readiness: would a failover now succeed, and at what loss? One function per question.

Each check returns ok, warn, fail or unknown, with a reason. A check that could not be made is unknown, neither
failed nor ok. `fail` means that a failover would be refused or would leave a group without a position; `warn`,
that it would succeed at a cost named in the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from drkit.config import ClusterConfig, Config, Objectives
from drkit.config.extras import Extra, require
from drkit.kafka.admin.cluster_admin import TopicInfo
from drkit.kafka.admin.clusters import Clusters
from drkit.lab.toolchain.java import find_java_home
from drkit.model.clock import now
from drkit.model.errors import DrkitError, NotShown, Refused, Unreachable
from drkit.model.link_state import DELETED_ON_SOURCE, HARMLESS, Problem
from drkit.model.offsets import Certainty
from drkit.model.runs import serve_again
from drkit.model.topology import Link, is_canary
from drkit.model.wording import and_more, counted
from drkit.observe.drill_history import PASSED, DrillKind, age_in_words
from drkit.observe.formatting import loss, short
from drkit.observe.link_status import GroupStatus, LinkStatus
from drkit.observe.poll_problems import FENCED
from drkit.observe.readiness.backlog_checks import (
    BROKERS,
    DISKS,
    RETENTION,
    brokers_check,
    disk_check,
    retention_check,
)
from drkit.observe.readiness.check import Check, CheckOutcome, asked_again, worst_outcome
from drkit.observe.readiness.clocks_check import CLOCKS, clocks_check
from drkit.observe.readiness.identity_check import ClusterIdentity, cluster_identities, identity_check
from drkit.observe.readiness.idle_groups import IDLE_GROUPS, idle_groups_check, moved_groups_check
from drkit.observe.readiness.load_check import LOAD, load_check
from drkit.observe.readiness.rights_checks import rights_checks
from drkit.observe.readiness.store_safety import copy_of_store, store_checks
from drkit.observe.readiness.target_checks import (
    ACCESS_RULES,
    CLIENT_SETTINGS,
    TOPIC_SETTINGS,
    VERSIONS,
    access_rules_check,
    client_settings_check,
    topic_settings_check,
    versions_check,
)
from drkit.observe.status import link_statuses
from drkit.store.api import Store

_RUNS = frozenset({"mirroring", "degraded"})
STALE_POSITIONS_SECONDS = 10.0
"""Group positions are captured every second; older ones than this are stale."""

MIRROR = "mirror"
"""The check of the link's state and its mirror."""
_NAME = "installation"

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """All checks of one link, and the loss of a failover now. `clusters`: its source and its target."""

    link: Link
    checks: tuple[Check, ...]
    expected_loss_records: int | None
    expected_loss_seconds: float | None
    clusters: tuple[ClusterIdentity, ...]

    @property
    def outcome(self) -> CheckOutcome:
        """The worst outcome of the checks."""
        return worst_outcome(self.checks)


def readiness(config: Config, store: Store, link: Link, clusters: Clusters) -> Readiness:
    """Ask every question about one link; `clusters` are `observing`'s.

    Raises:
        Unreachable: the store doesn't answer: without it a failover by mapping can't be made.
    """
    seen: Future[LinkStatus] = Future()
    look = partial(copy_of_store, config, store, link, clusters, now(), runs=lambda: seen.result().state in _RUNS)
    with ThreadPoolExecutor(1, "drkit-copy") as pool:  # read the copy while waiting for a dead source
        copied = pool.submit(_asked, "copy of the store", look)
        try:
            seen.set_result(link_statuses(config, store, [link], clusters=clusters)[0])
        except BaseException as error:
            seen.set_exception(error)
            raise
    return _answered(config, store, link, clusters, seen.result(), copied.result())


def _answered(
    config: Config, store: Store, link: Link, clusters: Clusters, status: LinkStatus, copied: Check
) -> Readiness:
    """The checks once the link's state is known. `copied`: the check of the store's copy."""
    if status.failed_over:
        return _of_failed_over(config, store, link, clusters, status, copied)
    identities = cluster_identities(status, clusters)
    checks = [
        _mirror(status),
        _objectives(status, config.objectives),
        *_problems(status),
        *_positions(status, clusters),
        *_unmovable(status),
        _clusters(status),
    ]
    if status.source_reachable:
        source = config.clusters[link.id.source]
        checks.append(_asked("fence", lambda: _fence(link.id.source, source, clusters)))
        if status.target_reachable:
            links = [each.link().id for each in config.links]
            checks.append(_shown(VERSIONS, lambda: versions_check(link.id, clusters)))
            checks.append(_shown(TOPIC_SETTINGS, lambda: topic_settings_check(status, store, clusters)))
            checks.append(_shown(ACCESS_RULES, lambda: access_rules_check(status, store, clusters, links)))
            checks.append(_shown(CLIENT_SETTINGS, lambda: client_settings_check(link.id, clusters)))
            checks.append(_shown(BROKERS, lambda: brokers_check(link.id, clusters)))
        checks.append(_shown(IDLE_GROUPS, lambda: idle_groups_check(status, store, clusters, now())))
        checks.append(_shown(RETENTION, lambda: retention_check(status, clusters, now())))
    if status.target_reachable:
        checks.append(_shown(DISKS, lambda: disk_check(status, clusters)))
        checks.append(_shown(LOAD, lambda: load_check(status, clusters)))
    checks.append(identity_check(identities))
    checks.append(_shown(CLOCKS, lambda: clocks_check(status, clusters)))
    checks.append(_asked("topics on the target", lambda: _topics(status, link.id.target, clusters)))
    if _moved(status):
        checks.append(_asked("groups on the target", lambda: _groups(status, link.id.target, clusters)))
    checks += rights_checks(config, store, status, clusters)
    checks += [*store_checks(config, store, link, clusters), copied]
    checks.append(installation())
    checks += _not_asked(status, checks)
    point = status.recovery_point
    if status.silence(link.id.target) is not None:  # what it still holds isn't known, so the loss isn't either
        return Readiness(link, tuple(checks), None, None, identities)
    return Readiness(link, tuple(checks), point.records, point.seconds, identities)


def _of_failed_over(
    config: Config, store: Store, link: Link, clusters: Clusters, status: LinkStatus, copied: Check
) -> Readiness:
    """The checks of a failed-over link: its groups run on the target, so no further failover is prepared.

    They check whether the target serves, and what is on the source.
    """
    stored = store_checks(config, store, link, clusters)
    rights = rights_checks(config, store, status, clusters)
    identities = cluster_identities(status, clusters)
    seen = [_mirror(status), _left_behind(status), *_problems(status), _serving(status), identity_check(identities)]
    seen.append(_shown(IDLE_GROUPS, lambda: moved_groups_check(status, store, clusters, now())))
    seen.append(_shown(CLOCKS, lambda: clocks_check(status, clusters)))
    checks = (*seen, *rights, *stored, copied, installation())
    return Readiness(link, checks, None, None, identities)


_OF_BOTH = (VERSIONS, TOPIC_SETTINGS, ACCESS_RULES, CLIENT_SETTINGS, BROKERS)
_OF_SOURCE = ("fence", IDLE_GROUPS, RETENTION)
_OF_TARGET = (DISKS, LOAD)


def _not_asked(status: LinkStatus, made: Sequence[Check]) -> list[Check]:
    """One check for all that a silent cluster left out: a check that is missing mustn't pass for one that is ok."""
    there = {each.name for each in made}
    left_out = [each for each in (*_OF_BOTH, *_OF_SOURCE, *_OF_TARGET) if each not in there]
    if not left_out:
        return []
    ids = status.link.id
    silent = [
        alias
        for alias, reached in ((ids.source, status.source_reachable), (ids.target, status.target_reachable))
        if not reached
    ]
    why = " and ".join(f"{alias} {status.unreached(alias)}" for alias in silent)
    return [
        Check("not asked", CheckOutcome.UNKNOWN, f"{', '.join(left_out)}: {why}", asked_again(" and ".join(silent)))
    ]


def _left_behind(status: LinkStatus) -> Check:
    """Records on the former primary that the serving cluster lacks."""
    name, point, ids = "left behind", status.recovery_point, status.link.id
    if status.state == "reversed":
        return Check(name, CheckOutcome.OK, f"a failback brings {ids.source} back: what only it held was salvaged")
    if point.records is None:
        return Check(name, CheckOutcome.UNKNOWN, f"it is unknown which records {ids.source} holds beyond {ids.target}")
    if point.records == 0 and not point.lower_bound:
        return Check(name, CheckOutcome.OK, f"{ids.source} holds nothing that is not on {ids.target}")
    held = loss(point.records, lower_bound=point.lower_bound)
    why = f"on {ids.source} and not on {ids.target}: {held}"
    keep = serve_again(status.link) if status.link.alters else "`drkit failback` salvages them"
    answers = {
        ids.source: status.source_reachable and status.source_unread is None,
        ids.target: status.target_reachable and status.target_unread is None,
    }
    silent = [alias for alias, told in answers.items() if not told] or [ids.source]
    once = f"{' and '.join(silent)} {'answers' if len(silent) == 1 else 'answer'}"
    count = f"; once {once}, `drkit runs RUN --audit` counts them (RUN: the failover in `drkit runs`)"
    return Check(name, CheckOutcome.WARN, why, keep + (count if point.lower_bound else ""))


def _serving(status: LinkStatus) -> Check:
    name, ids = "clusters", status.link.id
    if not status.target_reachable:
        why = f"{ids.target} {status.unreached(ids.target)}, and it serves {ids}'s clients"
        back = status.refused.get(ids.target, "Bring it back; `way out` names other commands that recover")
        return Check(name, CheckOutcome.FAIL, why, back)
    if status.target_unread is not None:
        why = f"{ids.target} serves, but not all of it: {status.target_unread}"
        return Check(name, CheckOutcome.WARN, why, f"Bring up the brokers of {ids.target} that are down")
    both = "both answer" if status.source_reachable else f"{ids.source} {status.unreached(ids.source)}"
    return Check(name, CheckOutcome.OK, f"{ids.target} serves; {both}", status.refused.get(ids.source, ""))


def _asked(name: str, check: Callable[[], Check]) -> Check:
    """A check that needs a cluster: no response is unknown, a missing right fails, as in a failover."""
    try:
        return check()
    except NotShown as error:
        return Check(name, CheckOutcome.FAIL, error.what, error.remedy)
    except Unreachable as error:
        return Check(name, CheckOutcome.UNKNOWN, error.what, error.remedy)
    except DrkitError as error:
        return Check(name, CheckOutcome.FAIL, error.what, error.remedy)


def _shown(name: str, check: Callable[[], Check]) -> Check:
    """As `_asked`, of what a failover doesn't need: it is unknown where drkit may not see it."""
    found = _asked(name, check)
    return replace(found, outcome=CheckOutcome.UNKNOWN) if found.outcome is CheckOutcome.FAIL else found


def _failed_away(status: LinkStatus) -> Check:
    name, link = MIRROR, status.link.id
    if status.state == "reversed":
        why = f"the link is reversed: data flows {link.reversed()}"
        remedy = (
            "See `drkit runs`: a failback that was interrupted continues with `drkit resume`; after a reprotect give "
            f'the link source = "{link.target}" and target = "{link.source}"'
        )
        return Check(name, CheckOutcome.FAIL, why, remedy)
    why = f"the link is {status.state}: it was failed over to {link.target} already"
    back = serve_again(status.link) if status.link.alters else "`drkit failback` brings the old primary back"
    return Check(name, CheckOutcome.FAIL, why, f"See `drkit runs`; {back}")


def _mirror(status: LinkStatus) -> Check:
    name, link = MIRROR, status.link.id
    if status.failed_over:
        return _failed_away(status)
    if status.observed_at is None:
        return Check(name, CheckOutcome.FAIL, "this link has never mirrored a record", "Start `drkit mirror`")
    if status.state == "stopped":
        halted = any(problem.halted for problem in status.problems)
        but = "; it moves nothing that a problem halts (see `problem`)" if halted else ""
        why = f" ({status.reason})" if status.reason else ""
        stopped = f"the mirror is not running{why}: the loss grows"
        return Check(name, CheckOutcome.WARN, stopped, f"Start `drkit mirror`{but}")
    if status.state == "paused":
        why = f"the link is paused: the loss grows ({status.reason or 'no reason kept'})"
        return Check(name, CheckOutcome.WARN, why, f"drkit link resume '{link}'")
    runs = f"running as {short(status.worker)}" if status.worker else "no mirror runs"
    if status.state != "mirroring":
        why = f"the link is {status.state} ({runs}): {status.reason or 'no reason kept'}"
        return Check(name, CheckOutcome.WARN, why, f"`drkit status --link '{link}' --all` shows what doesn't move")
    return Check(name, CheckOutcome.OK, runs)


def _objectives(status: LinkStatus, objectives: Objectives) -> Check:
    name = "recovery point"
    point = status.recovery_point
    seconds, target = point.seconds, status.link.id.target
    silent = status.silence(target)
    if point.records is None:
        again = "" if silent is None else asked_again(target)
        return Check(name, CheckOutcome.UNKNOWN, f"the loss is unknown: {point.reason}", again)
    if silent is not None:  # the count rests on what the target held when last seen
        last = f"{counted(point.records, 'record')} when last seen"
        why = f"the loss is unknown ({last}): whether {target} still holds what was mirrored isn't known, {silent}"
        return Check(name, CheckOutcome.UNKNOWN, why, asked_again(target))
    age = "their age is unknown" if seconds is None else f"the oldest {seconds:.1f} s behind"
    if not status.source_reachable:
        ago = "" if seconds is None else f", last looked at {seconds:.1f} s ago"
        unread = status.unreached(status.link.id.source)
        loss = f"a failover now loses {counted(point.records, 'record')} or more (the source {unread}{ago})"
        return Check(name, CheckOutcome.WARN, loss, "drkit counts the loss once the source answers again")
    if point.lower_bound:
        least = f"a failover now loses {counted(point.records, 'record')} or more: {point.reason}"
        deleted = any(each.kind in DELETED_ON_SOURCE for each in status.problems)
        remedy = f"Bring up the brokers of {status.link.id.source} that are down"
        return Check(
            name, CheckOutcome.WARN, least, f"{remedy}; of deleted topics see `problem`" if deleted else remedy
        )
    loss = f"a failover now loses {counted(point.records, 'record')}{f', {age}' if point.records else ''}"
    missed = []
    if objectives.rpo_records is not None and point.records > objectives.rpo_records:
        missed.append(f"rpo_records = {objectives.rpo_records}")
    if objectives.rpo_seconds is not None and (seconds is None or seconds > objectives.rpo_seconds):
        missed.append(f"rpo_seconds = {objectives.rpo_seconds:g}")
    if missed:
        return Check(name, CheckOutcome.WARN, f"{loss}: misses {', '.join(missed)}", "Let the mirror catch up")
    return Check(name, CheckOutcome.OK, loss)


def _problems(status: LinkStatus) -> list[Check]:
    if not status.problems:
        both = (status.link.id.source, status.link.id.target)
        silent = [why for why in map(status.silence, both) if why is not None]
        unseen = f"; what the logs show now isn't known: {'; '.join(silent)}" if silent else ""
        return [Check("problems", CheckOutcome.OK, f"none recorded{unseen}")]
    return [
        Check(f"problem: {problem.kind}", _gravity(problem), problem.reason, problem.remedy)
        for problem in status.problems
    ]


def _gravity(problem: Problem) -> CheckOutcome:
    if problem.kind in HARMLESS:
        return CheckOutcome.OK
    if problem.kind == FENCED:
        return CheckOutcome.FAIL
    moves_data = problem.topic is None or not is_canary(problem.topic)
    return CheckOutcome.FAIL if problem.halted and moves_data else CheckOutcome.WARN


def _moved(status: LinkStatus) -> list[GroupStatus]:
    """The positions of groups that a failover moves."""
    return [group for group in status.groups if group.type is None]


def _positions(status: LinkStatus, clusters: Clusters) -> list[Check]:
    """Whether the groups that a failover moves have a position, and its age."""
    groups = _moved(status)
    if groups:
        return [_positions_fresh(status, groups), _positions_known(status, groups)]
    name, source = "group positions captured", status.link.id.source
    why = "no group position is known: no group would be moved"
    if status.source_reachable and _has_no_groups(status, clusters):
        return [
            Check(name, CheckOutcome.WARN, f"{why}; {source} has no group that the link covers", "Do groups commit?")
        ]
    unknown = Check("group positions translatable", CheckOutcome.UNKNOWN, "no group position is known")
    return [Check(name, CheckOutcome.WARN, why, "Do groups commit?"), unknown]


def _has_no_groups(status: LinkStatus, clusters: Clusters) -> bool:
    """Whether the source itself, all its coordinators answering, lists no group that a failover would move."""
    try:
        listed = clusters.groups(status.link.id.source, may_be_gone=True).list_groups()
    except DrkitError:
        return False
    return not any(each.commits_offsets and status.link.covers_group(name) for name, each in listed.items())


def _positions_fresh(status: LinkStatus, groups: Sequence[GroupStatus]) -> Check:
    name = "group positions captured"
    oldest = min(group.captured_at for group in groups)
    age = (now() - oldest).total_seconds()
    if age < -STALE_POSITIONS_SECONDS:
        what = f"captured {-age:.0f} s in the future by this machine's clock: how old they are isn't known"
        return Check(name, CheckOutcome.WARN, what, "Set this machine's clock, or that of the mirror's host")
    text = f"{counted(len(groups), 'position')}, the oldest captured {age:.1f} s ago"
    if age > STALE_POSITIONS_SECONDS or not status.source_reachable:
        source = status.link.id.source
        remedy = (
            f"{source} {status.unreached(source)}, so nothing newer can be captured"
            if not status.source_reachable
            else "Start `drkit mirror`: it captures them"
            if status.worker is None
            else f"The mirror captures them: see its log, and the rights on {source} that `drkit acls` prints"
        )
        return Check(name, CheckOutcome.WARN, f"{text}: groups read later records again", remedy)
    return Check(name, CheckOutcome.OK, text)


def _positions_known(status: LinkStatus, groups: Sequence[GroupStatus]) -> Check:
    name, target = "group positions translatable", status.link.id.target
    missing = [g for g in groups if g.translation is Certainty.UNAVAILABLE]
    if missing:
        first = missing[0]
        why = f"{len(missing)} of {len(groups)} can't be translated, first {first.group} on {first.topic}:"
        return Check(
            name, CheckOutcome.FAIL, f"{why}{first.partition}: {first.reason}", "`drkit status --verbose` lists them"
        )
    if (silent := status.silence(target)) is not None:
        why = f"whether {target} still holds the places of {counted(len(groups), 'position')} isn't known: {silent}"
        return Check(name, CheckOutcome.UNKNOWN, why, asked_again(target))
    rough = sum(g.translation is Certainty.CONSERVATIVE for g in groups)
    if rough:
        why = f"{rough} of {len(groups)} are conservative: groups read some records again and skip none"
        return Check(name, CheckOutcome.OK, why)
    return Check(name, CheckOutcome.OK, f"all {len(groups)} exact")


def _unmovable(status: LinkStatus) -> list[Check]:
    return [
        Check(
            f"{each.type} group {each.group}",
            CheckOutcome.WARN,
            "it would not be moved",
            each.why(status.link.id.target),
        )
        for each in status.unmovable
    ]


def _clusters(status: LinkStatus) -> Check:
    name, source, target = "clusters", status.link.id.source, status.link.id.target
    if not status.target_reachable:
        why = f"{target} {status.unreached(target)}: there is nothing to fail over to"
        back = status.refused.get(target, "Check bootstrap_servers, the network and the brokers")
        return Check(name, CheckOutcome.FAIL, why, back)
    if not status.source_reachable:
        why = f"{source} {status.unreached(source)}: it can't be fenced"
        unfenced = "A failover needs --accept-unfenced; keep its producers stopped"
        return Check(name, CheckOutcome.WARN, why, status.refused.get(source, unfenced))
    if status.target_unread is not None:
        why = f"{status.target_unread}: a failover now leaves groups without a position there"
        return Check(name, CheckOutcome.WARN, why, f"Bring up the brokers of {target} that are down")
    if status.source_unread is not None:
        why = f"{status.source_unread}: what it holds there since it was last seen isn't known"
        return Check(name, CheckOutcome.WARN, why, f"Bring up the brokers of {source} that are down")
    return Check(name, CheckOutcome.OK, "both answer")


def _fence(alias: str, cluster: ClusterConfig, clusters: Clusters) -> Check:
    """How the source would be fenced; only a fence itself proves that it works."""
    name = "fence"
    if cluster.fence.command is not None:
        return Check(name, CheckOutcome.OK, f"{alias} would be fenced by its command")
    admin = clusters.admin(alias, may_be_gone=True)
    remedy = "A failover needs --accept-unfenced; or give it an authorizer or a command (docs/fencing.md)"
    try:
        admin.acls()
        allowed = admin.allowed_on_cluster()
    except Refused as error:
        return Check(name, CheckOutcome.WARN, f"{alias} can't be fenced: {error.what}", remedy)
    if allowed is not None and "alter" not in allowed:
        why = f"{alias} can't be fenced: drkit lacks Alter on it"
        without = "drkit acls --command fence prints the ACLs; without them a failover needs --accept-unfenced"
        return Check(name, CheckOutcome.WARN, why, without)
    return Check(name, CheckOutcome.OK, f"{alias} would be fenced by ACLs")


def _topics(status: LinkStatus, alias: str, clusters: Clusters) -> Check:
    name = "topics on the target"
    wanted: dict[str, int] = {}
    for each in status.partitions:
        wanted[each.target_topic] = max(wanted.get(each.target_topic, 0), each.partition + 1)
    if not wanted:  # nothing is asked then, so nothing would tell that the target is silent
        both = (status.link.id.source, status.link.id.target)
        silent = [each for each in both if status.silence(each) is not None]
        if silent:
            why = f"which topics have to be there isn't known: nothing was mirrored, and {status.silence(silent[0])}"
            return Check(name, CheckOutcome.UNKNOWN, why, asked_again(" and ".join(silent)))
        return Check(name, CheckOutcome.OK, f"the link's patterns match no topic of {status.link.id.source}")
    there: dict[str, TopicInfo] = clusters.admin(alias, may_be_gone=True).topics(wanted)
    missing = sorted(set(wanted) - set(there))
    if missing:
        why = f"missing on {alias}: {and_more(missing)}"
        of_topics_last = sorted(status.problems, key=lambda problem: problem.partition is None)
        halted = {problem.topic: problem.remedy for problem in of_topics_last if problem.halted}
        ours = {each.target_topic: each.topic for each in status.partitions}
        told = [halted[ours[name]] for name in missing if ours[name] in halted]
        return Check(name, CheckOutcome.FAIL, why, told[0] if told else "Start `drkit mirror`")
    short = [t for t, count in sorted(wanted.items()) if there[t].partitions < count]
    if short:
        return Check(
            name, CheckOutcome.FAIL, f"too few partitions on {alias}: {', '.join(short[:5])}", "Start `drkit mirror`"
        )
    single = [t for t in sorted(wanted) if there[t].replication_factor < 2]  # noqa: PLR2004  # 1 = no replica
    if single:
        there_are = f"{counted(len(wanted), 'topic')} {'is' if len(wanted) == 1 else 'are'} there"
        why = f"{there_are}; {len(single)} {'has' if len(single) == 1 else 'have'} one replica only, e.g. {single[0]}"
        return Check(name, CheckOutcome.WARN, why, "After a failover the loss of one broker would lose their data")
    return Check(name, CheckOutcome.OK, f"all {len(wanted)} are there with their partitions")


def _groups(status: LinkStatus, alias: str, clusters: Clusters) -> Check:
    name = "groups on the target"
    groups = sorted({group.group for group in _moved(status)})
    members = clusters.groups(alias, may_be_gone=True).members(groups)
    active = [group for group in groups if members.get(group, 0) > 0]
    if active:
        why = f"active on {alias}, a failover refuses them: {', '.join(active[:5])}"
        return Check(name, CheckOutcome.FAIL, why, "Stop their consumers on the target")
    return Check(name, CheckOutcome.OK, f"none of the {len(groups)} groups is active on {alias}")


def installation() -> Check:
    """Whether Spark and a suitable Java are installed here. A failover needs neither, so their lack is a warning."""
    try:
        require(Extra.SPARK, "an audit, a failback or a reprotect from here")
        find_java_home()
    except DrkitError as error:
        return Check(_NAME, CheckOutcome.WARN, f"{error.what}; a failover needs neither", error.remedy)
    return Check(_NAME, CheckOutcome.OK, "Spark and Java are installed: audits and failbacks can run here")


def drills_check(kinds: Sequence[DrillKind], every_days: float | None, at: datetime) -> Check | None:
    """Whether drills passed, and recently enough; None: there are no drills, and none is required.

    `every_days`: `[drills] every_days`: some kind of drill must have passed within this many days.
    """
    name, remedy = "drills", "Rehearse: drkit drill run --config FILE, or regularly with drkit drill schedule"
    ages = {each.title: each.age_seconds(at) for each in kinds}
    known = [age for age in ages.values() if age is not None]
    ahead = "when the last one passed isn't known: by this machine's clock it is in the future"
    none = ahead if any(each.passed_at is not None for each in kinds) else "no drill has passed"
    last = f"the last passed drill is {age_in_words(min(known))} old" if known else none
    not_passed = [f"{each.title} ({each.verdict})" for each in kinds if each.verdict != PASSED]
    told = f"{last}, of {counted(len(kinds), 'kind')} in the store"
    if every_days is not None and (not known or min(known) > every_days * _DAY):
        return Check(name, CheckOutcome.WARN, f"{told}; one is due every {every_days:g} days", remedy)
    if not kinds:
        return None
    if not_passed:
        return Check(name, CheckOutcome.WARN, f"{told}; not passed last: {', '.join(not_passed)}", remedy)
    if changed := _changed(kinds):
        return Check(name, CheckOutcome.WARN, f"{told}; changed since: {changed}", remedy)
    return Check(name, CheckOutcome.OK if known else CheckOutcome.UNKNOWN, told)


def _changed(kinds: Sequence[DrillKind]) -> str:
    """The changes since the newest passed drill of any kind; "" if there are none, or unknown."""
    passed = [each for each in kinds if each.passed_at is not None]
    newest = max(passed, key=lambda each: each.passed_at or each.at, default=None)
    return ", ".join((newest.changes or ()) if newest is not None else ())
