"""Whether drkit has the ACLs that its commands need, asked before the night.

Each cluster is asked once for all commands (`drkit.permissions.missing`). The check `rights` is of the next move: a
failover, or on a failed-over link a failback, or a lifted fence where no failback goes back along it. Of the other
commands each that lacks a right has a check of its own: a warning, because a failover is accepted without it.

`status`, `translate`, `doctor` and `serve` only look: other checks say what they aren't shown. `resume` and `abandon`
carry out commands that are asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from drkit.config import Config
from drkit.kafka.admin.clusters import Clusters
from drkit.model.errors import DrkitError, NotShown, Unreachable
from drkit.model.topology import REHEARSAL_GROUPS
from drkit.model.wording import and_more
from drkit.observe.link_status import LinkStatus
from drkit.observe.readiness.check import Check, CheckOutcome, asked_again
from drkit.permissions.missing import MissingRight, Names, missing_rights, remedy_of
from drkit.permissions.resolve import CLUSTER_NAME, cluster_of, exact_names
from drkit.permissions.table import Command, Operation, Side, Subject
from drkit.state_topic.copy_topic import copy_name
from drkit.store.api import LinkStore, Store

RIGHTS = "rights"
"""Name of the check of the next move."""
OTHER_RIGHTS = "rights of other commands"
_COMMANDS = (
    Command.MIRROR,
    Command.LINK,
    Command.FAILOVER,
    Command.REHEARSE,
    Command.FENCE,
    Command.FAILBACK,
    Command.REPROTECT,
    Command.SALVAGE,
    Command.AUDIT,
    Command.RUNS,
    Command.RECOVER,
)
_NOT_WHERE_RECORDS_ALTER = frozenset({Command.FAILBACK, Command.REPROTECT})


@dataclass(frozen=True, slots=True)
class AskedRights:
    """What the clusters of a link said. `missing`: by cluster and command; `silent`: why a cluster wasn't, or couldn't
    be, asked."""

    status: LinkStatus
    missing: Mapping[Side, Mapping[Command, list[MissingRight]]] = field(default_factory=dict)
    silent: Mapping[Side, str] = field(default_factory=dict)
    errors: Mapping[Side, DrkitError] = field(default_factory=dict)

    @property
    def next_move(self) -> Command:
        """The command that moves clients next."""
        if not self.status.failed_over:
            return Command.FAILOVER
        return Command.FENCE if self.status.link.alters else Command.FAILBACK


def rights_checks(config: Config, store: Store, status: LinkStatus, clusters: Clusters) -> list[Check]:
    """Ask both clusters, as far as they answer, and judge."""
    asked = AskedRights(status)
    commands = _commands_of(asked)
    missing: dict[Side, dict[Command, list[MissingRight]]] = {}
    silent: dict[Side, str] = {}
    errors: dict[Side, DrkitError] = {}
    for side in Side:
        alias = cluster_of(status.link, side)
        if not (status.source_reachable if side is Side.SOURCE else status.target_reachable):
            silent[side] = f"{alias} {status.unreached(alias)}"
            continue
        touched = dict.fromkeys(commands, _of_any(status, side, store))
        touched[asked.next_move] = _of_the_next_move(status, side)
        try:
            missing[side] = missing_rights(clusters, config, store, status.link, side, touched, may_be_gone=True)
        except DrkitError as error:
            silent[side], errors[side] = error.what, error
    return judged_rights(AskedRights(status, missing, silent, errors))


def _commands_of(asked: AskedRights) -> list[Command]:
    return [each for each in _COMMANDS if not (asked.status.link.alters and each in _NOT_WHERE_RECORDS_ALTER)]


def _of_the_next_move(status: LinkStatus, side: Side) -> Names:
    """What the next move touches. How the source of a failover is fenced, and that it can be, is the check `fence`."""
    there: Names = {(Subject.TOPICS, None): _topics(status, side), (Subject.GROUPS, None): _groups(status)}
    if status.failed_over:
        return {**there, (Subject.CLUSTER, Operation.ALTER): {CLUSTER_NAME}} if side is Side.SOURCE else there
    return there if side is Side.SOURCE else {**there, (Subject.CLUSTER, None): {CLUSTER_NAME}}


def _of_any(status: LinkStatus, side: Side, store: LinkStore) -> Names:
    """What commands touch at some time: topics and groups that the link names in full, too, before they are there."""
    topics, groups = exact_names(status.link, side)
    return {
        (Subject.TOPICS, None): _topics(status, side) | topics,
        (Subject.GROUPS, None): _groups(status) | groups,
        (Subject.CLUSTER, None): {CLUSTER_NAME},
        (Subject.STATE, None): {copy_name(status.link, store)},
        (Subject.REHEARSAL_GROUPS, None): {REHEARSAL_GROUPS},
    }


def _topics(status: LinkStatus, side: Side) -> set[str]:
    return {each.topic if side is Side.SOURCE else each.target_topic for each in status.partitions}


def _groups(status: LinkStatus) -> set[str]:
    return {each.group for each in status.groups if each.type is None}


def judged_rights(asked: AskedRights) -> list[Check]:
    """The checks of what was seen. Pure."""
    others = [each for each in _commands_of(asked) if each is not asked.next_move]
    return [_next_move(asked), *_other_commands(asked, others)]


def _next_move(asked: AskedRights) -> Check:
    command, link, away = asked.next_move, asked.status.link, asked.status.failed_over
    needed = Side.TARGET
    # a failback and a lifted fence change the source, too; a failover can do without it
    unasked = next((side for side in (needed, *((Side.SOURCE,) if away else ())) if side in asked.silent), None)
    missing = [each for side in asked.missing.values() for each in side[command]]
    refused = [each for each in missing if not each.optional and (away or each.cluster == cluster_of(link, needed))]
    besides = "" if unasked is None else f"; not asked on {cluster_of(link, unasked)}: {asked.silent[unasked]}"
    if refused:
        why = f"a {command} would be refused: {and_more([str(each) for each in refused], separator='; ')}{besides}"
        outcome = CheckOutcome.WARN if away else CheckOutcome.FAIL
        return Check(RIGHTS, outcome, why, remedy_of(command, link, refused[0].cluster))
    if unasked is not None:
        found = _not_asked(asked, unasked)
        return replace(found, reason=f"{found.reason}; {_said(missing)}") if missing else found
    if missing:
        return Check(RIGHTS, CheckOutcome.WARN, _said(missing), remedy_of(command, link, missing[0].cluster))
    where = _where(asked)
    return Check(RIGHTS, CheckOutcome.OK, f"drkit has the ACLs on {where} that a {command} needs")


def _not_asked(asked: AskedRights, side: Side) -> Check:
    """A cluster that must be asked, and wasn't: no response is unknown, a missing right fails, as in a failover."""
    error = asked.errors.get(side)
    unknown = error is None or (isinstance(error, Unreachable) and not isinstance(error, NotShown))
    outcome = CheckOutcome.UNKNOWN if unknown else CheckOutcome.FAIL
    again = asked_again(cluster_of(asked.status.link, side))
    return Check(RIGHTS, outcome, asked.silent[side], again if error is None else error.remedy or again)


def _other_commands(asked: AskedRights, commands: list[Command]) -> list[Check]:
    link = asked.status.link
    found, whole = [], []
    for command in commands:
        missing = [each for side in asked.missing.values() for each in side[command]]
        if missing:
            first = missing[0]
            found.append(
                Check(
                    f"rights of {command}", CheckOutcome.WARN, _said(missing), remedy_of(command, link, first.cluster)
                )
            )
        else:
            whole.append(command)
    if whole and asked.missing:
        why = f"drkit has the ACLs on {_where(asked)} that these need on what is there: {', '.join(whole)}"
        found.append(Check(OTHER_RIGHTS, CheckOutcome.OK, why))
    found += [
        Check(
            OTHER_RIGHTS,
            CheckOutcome.UNKNOWN,
            f"not asked on {cluster_of(link, side)}: {why}",
            asked_again(cluster_of(link, side)),
        )
        for side, why in asked.silent.items()
    ]
    return found


def _said(missing: list[MissingRight]) -> str:
    """Each right, and what happens without it; one that the command can't do without comes first."""
    ordered = sorted(missing, key=lambda each: each.optional)
    return and_more([f"{each}: {'; '.join(each.without)}" for each in ordered], separator="; ")


def _where(asked: AskedRights) -> str:
    return " and ".join(sorted(cluster_of(asked.status.link, side) for side in asked.missing))
