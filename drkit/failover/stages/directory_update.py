"""Where clients find the cluster: looking at the directories for the plan, publishing in the switch."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from drkit.directory import Directory, Entry
from drkit.failover.plan.failover_plan import DirectoryView, Obstacle
from drkit.failover.run.cluster_context import ClusterContext
from drkit.failover.stages.stage import StageContext
from drkit.model.clock import now
from drkit.model.errors import DrkitError, PartlyDone, Refused
from drkit.model.link_state import Direction
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
    """What was done: a sentence, and whether there is a directory at all."""

    reason: str
    configured: bool


def serving(link: LinkId, direction: Direction) -> str:
    """The cluster that serves the clients of a configured link in that state."""
    return link.target if _SERVES[direction] == "target" else link.source


def read_directories(estate: ClusterContext, link: LinkId) -> tuple[DirectoryView, ...]:
    """What each directory of the link says now; one that doesn't answer is shown with the reason."""
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
        views: what they say now.
        link: whose entry they hold.
        active: the cluster that the run would publish.
        epoch: the least epoch that it would publish with.
        again: whether that epoch may stand there already, of a run before.
    """
    found = []
    for view in views:
        if view.epoch is None or view.epoch < epoch or (again and view.epoch == epoch and view.active == active):
            continue
        found.append(
            Obstacle(
                f"{view.name} says {view.active}, epoch {view.epoch}; this run would write {active} with epoch {epoch}",
                f"That entry is not of the store's history of {link}: the switch would not overwrite it",
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
        Refused: the link was decided otherwise since.
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
            meaning=f"It was decided otherwise since, so {active} is not published",
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
            meaning=first.meaning or f"Groups stand on {active}; clients that look there don't find it yet",
            remedy=f"{first.remedy or 'Remove the cause'}; then drkit resume {context.run}",
        )
    return Published(f"clients at {endpoint} ({active}): {'; '.join(done)}", configured=True)


def _publish(directory: Directory, entry: Entry) -> str:
    changed = directory.publish(entry)
    found = directory.read()
    if found is None and not directory.confirms:
        return f"{directory.name} done (it doesn't say what stands there)"
    if found is None or (found.active, found.bootstrap_servers, found.epoch) != (
        entry.active,
        entry.bootstrap_servers,
        entry.epoch,
    ):
        raise DrkitError(
            f"{directory.name} was written, and then says {found or 'nothing'}",
            meaning="Somebody else writes there, or it didn't keep what it was given",
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
