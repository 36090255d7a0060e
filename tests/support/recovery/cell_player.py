"""Executes the commands of docs/recovery.md for a cell, and checks the outcome with plain clients.

The checks don't use drkit: they read records with confluent-kafka, positions with kafka-python, salvages as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaAdminClient, TopicPartition
from kafka.errors import KafkaError

from drkit.failover.context.cluster_context import ClusterContext
from drkit.failover.context.state_machine import Kind, Mode, State
from drkit.failover.planning.failover_planner import PlanRequest, make_plan
from drkit.failover.recovery.abandon import abandon_run
from drkit.failover.recovery.fence_command import lift_fence
from drkit.failover.recovery.way_out import ABANDON, BY_HAND, STATUS, Component, ComponentCondition, Situation, way_out
from drkit.failover.run.service import cancel_run, resume_run, run_failover
from drkit.lab import Lab
from drkit.mirror.runtime.mirror_runtime import MirrorRuntime
from drkit.model.errors import DrkitError, ExitCode, Refused
from tests.support.clusters.secured import write
from tests.support.links.estates import OwnLink
from tests.support.links.log_reader import read_topics
from tests.support.recovery.cell_faults import ALIAS, Mend, broken
from tests.support.recovery.failback_ports import reading_ports
from tests.support.recovery.prepared_runs import ALIASES, PreparedRun, Site
from tests.support.recovery.recovery_cells import Cell, Fault, RunState
from tests.support.wait import wait_until

_AT_ONCE = 4
_LEASE_SECONDS = 40.0
_ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Verdict:
    """The outcome of a cell; `problem`: the difference from the table."""

    cell: str
    seconds: float
    problem: str = ""


def play_all(site: Site, played: Sequence[Cell], known: Mapping[RunState, PreparedRun]) -> list[Verdict]:
    """Play the cells of one fault, each on its run.

    Args:
        site: the lab, with the runs in their states.
        played: the cells.
        known: their runs.
    """
    (fault,) = {cell.fault for cell in played}
    runs = [known[cell.at] for cell in played]
    prefixes = [f"{run.name}." for run in runs]
    held, stands = site.seen.get(tuple(prefixes), ({}, {}))
    if not held:
        held = {alias: contents(site.lab, alias, prefixes) for alias in ALIASES}
        stands = positions(site.lab, runs)
        site.seen[tuple(prefixes)] = held, stands
    held = dict(held)
    with broken(site, fault, runs) as mend:
        if fault.part in ALIAS and fault.condition in {
            ComponentCondition.EMPTY,
            ComponentCondition.CUT,
            ComponentCondition.REPLACED,
        }:
            alias = ALIAS[fault.part]
            held[alias] = contents(site.lab, alias, prefixes)
            stands = positions(site.lab, runs)
        salvaged = {run.name: kept(run) for run in runs}
        if fault.part is Component.MACHINE and fault.condition in {
            ComponentCondition.DOWN,
            ComponentCondition.REPLACED,
        }:
            verdicts = _on_another_machine(site, fault, runs)
        else:
            verdicts = play_runs(site.lab, fault, runs, mend)
    after = {alias: contents(site.lab, alias, prefixes) for alias in ALIASES}
    stand = positions(site.lab, runs)
    return [
        Verdict(verdict.cell, verdict.seconds, verdict.problem or _missing(run, held, salvaged, stands, after, stand))
        for run, verdict in zip(runs, verdicts, strict=True)
    ]


def play_runs(lab: Lab, fault: Fault, runs: Sequence[PreparedRun], mend: Mend) -> list[Verdict]:
    """Execute the table's commands for each run."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda run: _played(lab, Cell(run.at, fault), run, mend), runs))


def _played(lab: Lab, cell: Cell, run: PreparedRun, mend: Mend) -> Verdict:
    began = time.monotonic()
    problem = ""
    try:
        _carried_out(lab, cell, run, mend)
    except BaseException as error:  # noqa: BLE001 - it is what the verdict is about
        problem = "".join(traceback.format_exception(error))[-3000:]
    return Verdict(str(cell), round(time.monotonic() - began, 1), problem)


def _carried_out(lab: Lab, cell: Cell, run: PreparedRun, mend: Mend) -> None:
    out = cell.out
    assert out.serves is not None
    serves = ALIAS[out.serves]
    if set(out.commands) <= {STATUS, BY_HAND}:
        if BY_HAND in out.commands:
            lift_by_hand(lab, serves, run)
    else:
        _commands(run, out.commands)
    if out.serves is cell.fault.part and cell.fault.condition is ComponentCondition.REPLACED:
        return  # another cluster: its clients' rights and topics are its own
    wait_until(lambda: write(lab, serves, run.topic) == "written", what=f"a client of {serves} to write to {run.topic}")
    if BY_HAND in out.commands:
        mend(run)
        with _mirror_kept_up(run):  # the records that came meanwhile must be copied
            _commands(run, way_out(Situation(*cell.at).where(Component.STORE, ComponentCondition.BACK)).commands)


def _commands(run: PreparedRun, commands: Sequence[str]) -> None:
    names = {"LINK": "primary->dr", "SOURCE": "primary", "TARGET": "dr", "DIR": str(run.folder / "elsewhere")}
    if commands[0].startswith("drkit store recover"):  # before anything opens the store
        recover_store(run, [names.get(word, word) for word in shlex.split(commands[0])][1:])
        commands = commands[1:]
    mine = run.open()
    listed = [each.run for each in mine.store.runs() if each.kind in set(Kind)]
    filled = [each.replace("RUN", listed[0] if listed else "RUN") for each in commands]
    with contextlib.closing(mine.store), ClusterContext(mine.config, mine.store, patience_seconds=2.0) as estate:
        for text, following in zip(filled, (*commands[1:], ""), strict=True):
            words = [names.get(word, word) for word in shlex.split(text)]
            if not _carry_out(mine, estate, words, run, or_abandoned=following == ABANDON):
                break


def _carry_out(
    mine: OwnLink, estate: ClusterContext, words: Sequence[str], run: PreparedRun, *, or_abandoned: bool = False
) -> bool:
    """Do what a command does, without its dialogue; returns whether the next one is needed.

    `or_abandoned`: the next command is for a run that this one can't complete.
    """
    match words[1:]:
        case ["status", *_]:
            pass
        case ["abandon", name]:
            abandon_run(estate, name, _silent)
        case ["resume", name, "--cancel"]:
            error = cancel_run(estate, name).error
            assert error is None, error
        case ["resume", name, *rest]:
            folder = Path(rest[1]) if rest[:1] == ["--salvage-dir"] else run.salvage
            left = _resume(mine, estate, name, folder, unplanned="--unplanned" in rest)
            assert left is None or or_abandoned, left
            return not or_abandoned or left is not None
        case ["fence", "--lift", "--cluster", cluster, *_]:
            _, proof = lift_fence(estate, mine.link, cluster, _silent, meant=True)
            assert not proof.proven, proof.reason
        case ["failover", "--to", to, "--unplanned", "--accept-unfenced", *_]:
            plan = make_plan(estate, PlanRequest(to, mode=Mode.UNPLANNED))
            error = run_failover(estate, plan, accept_unfenced=True).error
            assert error is None, error
        case _:
            raise AssertionError(f"no such command: {shlex.join(words)}")
    return True


def recover_store(run: PreparedRun, words: Sequence[str]) -> None:
    """Run the command; first moves away a store that holds data of the link, as the refusal tells."""
    command = [sys.executable, "-m", "drkit", *words, "--config", str(run.config_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if ended.returncode == int(ExitCode.REFUSED) and "the store holds data" in ended.stderr:
        for file in run.folder.glob("drkit.db*"):
            file.rename(file.with_name(f"before-{file.name}"))
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr


def _resume(mine: OwnLink, estate: ClusterContext, name: str, folder: Path, *, unplanned: bool) -> DrkitError | None:
    """Wait until another holder's lease of the run is over; yields the error that keeps the run from its end."""
    deadline = time.monotonic() + _LEASE_SECONDS
    while True:
        try:
            result = resume_run(estate, name, reading_ports(mine, folder), unplanned=unplanned)
        except Refused as refused:
            if "is acting on" not in refused.what or time.monotonic() > deadline:
                raise
        else:
            break
        time.sleep(0.2)
    assert (result.error is None) == (result.machine.state is State.CLOSED)
    return result.error


@contextmanager
def _mirror_kept_up(run: PreparedRun) -> Iterator[None]:
    """A mirror that is restarted whenever it ends, like a service, if a failover needs one."""
    if run.at.kind is not Kind.FAILOVER:
        yield
        return
    stop = threading.Event()

    def serve() -> None:
        mine = run.open()
        with contextlib.closing(mine.store):
            while not stop.is_set():
                with contextlib.suppress(Refused):  # the link is sealed
                    MirrorRuntime(mine.config, mine.link, mine.store).run(False, stop)
                stop.wait(0.1)

    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve)
        try:
            yield
        finally:
            stop.set()
            served.result(60)


def _silent(_text: str) -> None:
    pass


def _nothing(_run: PreparedRun) -> None:
    pass


def lift_by_hand(lab: Lab, alias: str, run: PreparedRun) -> None:
    """Like an operator with kafka-acls: remove the rules that deny everybody the link's topics and groups."""
    admin = AdminClient({"bootstrap.servers": lab.bootstrap(alias)})
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        "User:*",
        None,
        AclOperation.ANY,
        AclPermissionType.DENY,
    )
    found = [rule for rule in admin.describe_acls(everything).result(30) if rule.name.startswith(f"{run.name}.")]
    filters = [
        AclBindingFilter(
            rule.restype,
            rule.name,
            rule.resource_pattern_type,
            rule.principal,
            rule.host,
            rule.operation,
            rule.permission_type,
        )
        for rule in found
    ]
    for future in (admin.delete_acls(filters) if filters else {}).values():
        future.result(30)


# -- another machine -------------------------------------------------------------------------------


def _on_another_machine(site: Site, fault: Fault, runs: Sequence[PreparedRun]) -> list[Verdict]:
    """Play in a new pid namespace, with an empty home: drkit distinguishes machines by these."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=site.folder))
    told = {"lab": str(site.lab.dir), "fault": list(fault), "runs": [_text(run) for run in runs]}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("XDG_")},
        "HOME": str(home),
        "PYTHONPATH": str(_ROOT),
    }
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-m", "tests.support.recovery.cell_player"]
    ended = subprocess.run(
        command, input=json.dumps(told), env=environment, cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return [Verdict(**each) for each in json.loads(ended.stdout.splitlines()[-1])]


def _text(run: PreparedRun) -> dict[str, object]:
    return {"at": list(run.at), "name": run.name, "folder": str(run.folder), "salvage": str(run.salvage)}


def main() -> None:
    """Play the runs named on stdin; prints the verdicts as one line of JSON."""
    told = json.load(sys.stdin)
    part, condition = told["fault"]
    runs = [
        PreparedRun(
            RunState(None if kind is None else Kind(kind), Mode(mode), State(state)),
            each["name"],
            Path(each["folder"]),
            Path(each["salvage"]),
        )
        for each in told["runs"]
        for kind, mode, state in [each["at"]]
    ]
    verdicts = play_runs(
        Lab.open(Path(told["lab"])), Fault(Component(part), ComponentCondition(condition)), runs, _nothing
    )
    sys.stdout.write(f"\n{json.dumps([asdict(each) for each in verdicts])}\n")


# -- the independent reader ------------------------------------------------------------------------


def contents(lab: Lab, alias: str, prefixes: Sequence[str]) -> dict[str, set[str]]:
    """Every committed value of the topics with this prefix, by topic."""
    read = read_topics(lab.bootstrap(alias), lambda name: name.startswith(tuple(prefixes)))
    return {
        topic: {(each.value or b"").decode() for records in partitions.values() for each in records}
        for topic, partitions in read.items()
    }


Places = dict[str, set[int]]
"""The partitions on which a run's group has a position anywhere, by run."""


def positions(lab: Lab, runs: Sequence[PreparedRun]) -> Places:
    """The partitions on which each run's group has a position, on either cluster or in a salvage."""
    found = {run.name: _salvaged_positions(run) for run in runs}
    for alias in ALIASES:
        offsets = wait_until(partial(_committed, lab, alias, runs), what=f"the groups' coordinator of {alias}")
        for run in runs:
            found[run.name] |= {place.partition for place in offsets.get(run.group, {}) if place.topic == run.topic}
    return found


def _committed(lab: Lab, alias: str, runs: Sequence[PreparedRun]) -> dict[str, dict[TopicPartition, object]]:
    """The committed offsets of all groups on a cluster."""
    client = KafkaAdminClient(bootstrap_servers=lab.bootstrap(alias), request_timeout_ms=20_000)
    try:
        found: dict[str, dict[TopicPartition, object]] = client.list_group_offsets([run.group for run in runs])
    except KafkaError as error:
        raise AssertionError(str(error)) from error
    finally:
        client.close()
    return found or {"": {}}


def _salvaged_positions(run: PreparedRun) -> set[int]:
    rows = [row for file in run.salvage.rglob("positions.json") for row in _read(file)]
    return {row["partition"] for row in rows if row["group"] == run.group}


def _read(file: Path) -> list[dict[str, object]]:
    with contextlib.suppress(ValueError):
        return list(json.loads(file.read_text()))
    return []


def kept(run: PreparedRun) -> set[str]:
    """Every value in a readable salvage of the run."""
    found = set()
    for folder in (run.salvage, run.folder / "elsewhere"):
        for file in folder.rglob("*.jsonl"):
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    found.add(json.loads(line)[3])
    return found


def _missing(
    run: PreparedRun,
    held: Mapping[str, Mapping[str, set[str]]],
    salvaged: Mapping[str, set[str]],
    stood: Places,
    after: Mapping[str, Mapping[str, set[str]]],
    stand: Places,
) -> str:
    """Report values and positions that existed after the fault and are now lost."""
    before = set().union(salvaged[run.name], *(held[alias].get(run.topic, set()) for alias in ALIASES))
    there = set().union(kept(run), *(after[alias].get(run.topic, set()) for alias in ALIASES))
    said = []
    if before - there:
        said.append(f"destroyed: {sorted(before - there)}")
    if stood[run.name] - stand[run.name]:
        said.append(f"positions are gone on partitions {sorted(stood[run.name] - stand[run.name])}")
    return "; ".join(said)


if __name__ == "__main__":
    main()
