"""Cluster directories: reading them for the plan, publishing the serving cluster in the switch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from drkit.directory import Directory, Entry
from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.lease import RunLease
from drkit.failover.journal.journal import new_run_id
from drkit.failover.plan.failover_plan import DirectoryView, Obstacle
from drkit.failover.stages.stage import StageContext
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import LinkId

_MOST = 8
_SERVES = {
    Direction.SEALED: "target",
    Direction.REVERSED: "target",
    Direction.ACTIVE: "source",
    Direction.PAUSED: "source",
}


@dataclass(frozen=True, slots=True)
class Published:
    """What was done, in a sentence, and whether any directory is configured."""

    reason: str
    configured: bool


def serving(link: LinkId, direction: Direction) -> str:
    """The cluster that serves the clients of a configured link in that state."""
    return link.target if _SERVES[direction] == "target" else link.source


def read_directories(estate: ClusterContext, link: LinkId) -> tuple[DirectoryView, ...]:
    """The current entry of each directory of the link; one that doesn't answer has the reason."""
    directories = estate.directories(link)
    if not directories:
        return ()
    with ThreadPoolExecutor(max_workers=min(_MOST, len(directories))) as pool:
        return tuple(pool.map(_view, directories))


def newer_entries(
    views: Sequence[DirectoryView], link: LinkId, active: str, epoch: int, *, again: bool = False
) -> list[Obstacle]:
    """Directories whose entry is newer than the one that a run would write. Pure.

    Args:
        views: their current entries.
        link: the link of the entries.
        active: the cluster that the run would publish.
        epoch: the lowest epoch that it would publish with.
        again: whether an earlier run may already have published that epoch.
    """
    found = []
    for view in views:
        if view.epoch is None or view.epoch < epoch or (again and view.epoch == epoch and view.active == active):
            continue
        found.append(
            Obstacle(
                f"{view.name} says {view.active}, epoch {view.epoch}; this run would write {active} with epoch {epoch}",
                f"That entry doesn't belong to the store's history of {link}: the switch would not overwrite it",
                f"Check [store] in the configuration; if the store was rebuilt: drkit link recover '{link}'; if the "
                "entry is a leftover of another store, remove it by hand",
            )
        )
    return found


def warnings_of(views: Sequence[DirectoryView]) -> list[str]:
    """Directories that can't be asked now: the switch will need them."""
    return [f"{view.reason}; without it the switch stops, and can be resumed" for view in views if view.reason]


def publish(context: StageContext, link: LinkId, active: str, endpoint: str, role: str) -> Published:
    """Publish a cluster in every directory of the link, and read each back.

    Args:
        context: the run.
        link: the configured link.
        active: the alias of the cluster that serves now.
        endpoint: its bootstrap servers.
        role: which side of the configured link it is, `source` or `target`.

    Raises:
        Refused: another run has decided the link since.
        PartlyDone: a directory doesn't answer, or refuses; the others have it.
    """
    directories = context.estate.directories(link)
    if not directories:
        return Published(
            f"no cluster directory is configured: point clients at {endpoint} ({active})", configured=False
        )
    control = context.estate.store.link_control(link)
    if control is None or _SERVES[control.direction] != role:
        raise Refused(
            f"the link {link} is {'active' if control is None else control.direction} by now",
            meaning=f"Another run has decided it since, so drkit does not publish {active}",
            remedy="`drkit status` and `drkit runs` show what happened",
        )
    entry = Entry(str(link), active, endpoint, control.version, context.run, now())
    failures: list[DrkitError] = []
    done = []
    for directory in directories:
        context.lease.check()
        context.say(f"publishing {active} in {directory.name}")
        try:
            done.append(_publish(directory, entry))
        except DrkitError as error:
            failures.append(error)
    if failures:
        first = failures[0]
        raise PartlyDone(
            f"{len(failures)} of {len(directories)} directories don't say {active} yet: {first.what}",
            meaning=first.meaning or f"Groups are on {active}; clients that look there don't find it yet",
            remedy=f"{first.remedy or 'Remove the cause'}; then drkit resume {context.run}",
        )
    return Published(f"clients at {endpoint} ({active}): {'; '.join(done)}", configured=True)


def _publish(directory: Directory, entry: Entry) -> str:
    changed = directory.publish(entry)
    found = directory.read()
    if found is None and not directory.confirms:
        return f"{directory.name} done (it doesn't say what is there)"
    if found is None or (found.active, found.bootstrap_servers, found.epoch) != (
        entry.active,
        entry.bootstrap_servers,
        entry.epoch,
    ):
        raise DrkitError(
            f"{directory.name} was written, and then says {found or 'nothing'}",
            meaning="Another program writes there, or it didn't store the entry",
            remedy=f"`drkit endpoint --link '{entry.link}'` shows what it holds; stop the other writer, then try again",
        )
    return f"{directory.name} says epoch {entry.epoch}" + ("" if changed else " already")


def _view(directory: Directory) -> DirectoryView:
    try:
        entry = directory.read()
    except DrkitError as error:
        return DirectoryView(directory.name, reason=error.what)
    if entry is None:
        return DirectoryView(directory.name)
    return DirectoryView(directory.name, entry.active, entry.bootstrap_servers, entry.epoch)


def recover_epoch(estate: ClusterContext, link: LinkId) -> tuple[LinkControl, bool]:
    """Raise a configured link's version to the greatest epoch in its directories; its control, and whether it changed.

    For a store that was lost and rebuilt. An entry's epoch is the version of a decision: a new store counts from 1, so
    none of its decisions would replace the directories' entries. Only the version is raised: the serving cluster must
    be the one that they name, else more than the count is lost.

    Raises:
        Refused: an entry is another link's, or names another serving cluster than the store; a run is in progress.
        Unreachable: a directory or the store doesn't answer: an unseen epoch might be greater.
    """
    with RunLease(estate.store, link, new_run_id()):
        kept = estate.store.link_control(link)
        control = kept or LinkControl(link, Direction.ACTIVE, 0, now(), "", None, frozenset())
        serves = serving(link, control.direction)
        greatest = 0
        for directory in estate.directories(link):
            entry = directory.read()
            if entry is not None:
                _check(entry, link, serves, directory.name)
                greatest = max(greatest, entry.epoch)
        if greatest <= control.version:
            return control, False
        raised = replace(control, version=greatest)
        if not estate.store.set_link_control(raised, expected_version=None if kept is None else kept.version):
            raise Refused(f"the state of {link} was changed at the same time", remedy="Try again")
        return raised, True


def _check(entry: Entry, link: LinkId, serves: str, where: str) -> None:
    if entry.link not in {str(link), str(link.reversed())}:
        raise Refused(
            f"{where} holds the entry of {entry.link}, not of {link}",
            remedy="Correct the directory's `url` or `link` in the configuration",
        )
    if entry.active != serves:
        raise Refused(
            f"{where} says that {entry.active} serves (epoch {entry.epoch}, run {entry.run}); by the store {serves} "
            "does",
            meaning="More than the count is lost: decisions of this store would lead clients away from the cluster "
            "that they use",
            remedy=f"Restore the store. Or, if {serves} does serve, remove the entry by hand; if {entry.active} does, "
            f'give the link source = "{entry.active}" in the configuration',
        )
