"""The actions on a link: one method for each kind, with the kind's name in the plan."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from chaos.adversary import oracle
from chaos.adversary.fault_points import told_in
from chaos.adversary.oracle import DEAD, PURGED
from chaos.adversary.plan import REMOVES_ALL, Action
from chaos.adversary.world import FOREVER, LINK, Cluster, World
from chaos.soak.clusters import Content, SoakError
from drkit.drill.environment.waiting import wait_for
from drkit.model.errors import ExitCode

PROVENANCE = "drkit."
"""The prefix of the headers that a link with provenance adds."""

_TAKE_OVER_SECONDS = 15.0
_WAKES_WITHIN_SECONDS = 20.0
_AWAKE_CPU_SECONDS = 0.5
"""A worker that has worked so long since it woke up has sent what it had decided to send."""
_DIES_WITHIN_SECONDS = 4.0
_FORGETS_WITHIN_SECONDS = 3.0
_REMOVES_WITHIN_SECONDS = 4.0
_ANSWERS_WITHIN_SECONDS = 40.0

_TAKEN_UP_SECONDS = 5.0  # topics are checked every three
_LIMIT = "max.message.bytes"
_RAISED, _ABOVE_LIMIT = "5000000", 2_000_000
_LOWERED, _ABOVE_LOWERED = "10000", 15_000
_LATE_SECONDS = 1.5  # a sender that waits for three counts as stuck, and its partitions are not read any more
_LEARNS_SECONDS = 0.5  # a broker applies a new limit a moment after its response

_FAIL_OVER = (
    "failover",
    "--to",
    LINK.split("->")[1],
    "--unplanned",
    "--accept-unfenced",
    "--accept-loss",
    "unknown",
    "--yes",
)

Settle = Callable[..., dict[str, Any] | None]


class Actions:
    """Plays actions.

    Args:
        world: the run's topic, link, store and workers.
        settle: waits until the mirror is idle (and at least so many seconds); returns the link's status.
        say: called with a readable line about what came of an action.

    `touched`: the partitions of the target from which something was removed, on purpose or by a fault, since it was
    last cleared.
    """

    def __init__(self, world: World, settle: Settle, say: Callable[[str], None]) -> None:
        self._world = world
        self._settle = settle
        self._say = say
        self.touched: set[int] = set()
        self.history: dict[int, int] = {}
        """Partition → begin of the current incarnation on the target, once one was given up."""

    def play(self, action: Action) -> None:
        """Play an action."""
        if action.options.get("point"):  # so that a worker can die in its very first steps
            self._world.arm(action.options["point"], action.options.get("pass_by", 0), signal.SIGKILL)
        if not action.early:
            self._world.start()
        getattr(self, action.kind)(**action.options)

    # -- the load ----------------------------------------------------------------------------------

    def produce(self, partition: int, count: int, **shape: Any) -> None:
        """Records of one shape."""
        self._world.load.write(self._place(partition), count, shape)

    def fill(self, partition: int, count: int) -> None:
        """Very many records at once."""
        self._world.load.write(partition, count, {"per_batch": 10_000})

    def transaction(self, partition: int, count: int, *, commit: bool, **shape: Any) -> None:
        """Records in a transaction."""
        self._world.load.transaction(self._place(partition), count, shape, commit=commit)

    def open_transaction(self, partition: int, count: int, *, commit: bool, **shape: Any) -> None:
        """Records in a transaction that stays open to the end (`commit` or not)."""
        del commit
        self._world.load.open_transaction(self._place(partition), count, shape)

    # -- logs --------------------------------------------------------------------------------------

    def cut(self, **options: Any) -> None:
        """A log loses its end; the source grows at once, before an absent mirror comes back."""
        self._hurt(**options)

    def lose_disk(self, **options: Any) -> None:
        """The only replica of a partition loses its disk."""
        self._hurt(**options)

    def _hurt(
        self,
        side: str,
        partition: int,
        regrow: int,
        mirror: str,
        stamp: str,
        *,
        caught_up: bool,
        cleanly: bool,
        records: int | None = None,
    ) -> None:
        world, cluster = self._world, self._world.side(side)
        partition = self._place(partition)
        if caught_up:
            self._settle()
        with world.mirror(mirror):
            number = self._number(cluster)
            if not number:
                return
            if records is None:
                cluster.lose(world.topic, partition, cleanly=cleanly)
            else:
                cluster.cut(world.topic, partition, records, cleanly=cleanly)
            cluster.wait_ready(world.topic, number)
            if side == "target":
                self._target_lost([partition])
            if regrow:
                world.load.write(partition, regrow, {"per_batch": 20, "stamp": stamp})
        self._look(DEAD)

    def set_back(
        self,
        side: str,
        partition: int,
        between: int,
        regrow: int,
        mirror: str,
        stamp: str,
        *,
        caught_up: bool,
        what: str = "plain",
        left_out: int = 0,
        restarts: int = 0,
        again: int = 0,
        cut_before: int = 0,
    ) -> None:
        """A whole cluster, including its controller, is restored from a copy of its disks; the source grows at once.
        Leader epochs are assigned a second time. `what`: kind of the records that it loses; `left_out`: how many of the
        last ones that it grows by the link's filter leaves out; `restarts`: of its broker since the copy, so that the
        mirrored epoch is one that it never reaches; `again`: it is restored once more, from an earlier copy, and grows
        by so many (0: it isn't); `cut_before`: it loses so many records at its end, and grows again, before it is
        restored, so that a problem names a place above the copy's."""
        world, cluster = self._world, self._world.side(side)
        partition = self._place(partition)
        status = self._settle()
        number = self._number(cluster)
        if status is None:
            raise SoakError("drkit status fails")
        if not number or (mirror == "live" and any(p["halted"] for p in status["problems"])):
            return  # a paused topic would be retried when it is resumed
        copy, earlier = world.folder / "disks", world.folder / "earlier-disks"
        if again:
            cluster.copy_disks(earlier)
            cluster.wait_ready(world.topic, number)
            world.load.write(partition, between, {"per_batch": 20, "stamp": stamp})
        cluster.copy_disks(copy)
        for _ in range(restarts):
            cluster.restart(cleanly=True)
        cluster.wait_ready(world.topic, number)
        world.load.write(partition, between, {"per_batch": 20, "stamp": stamp, "what": what})
        if caught_up:
            self._settle()
        if cut_before:
            cluster.cut(world.topic, partition, cut_before, cleanly=True)
            cluster.wait_ready(world.topic, number)
            world.load.write(partition, 2 * cut_before, {"per_batch": 20, "stamp": stamp})
            self._look(DEAD)
            self._settle()
        if mirror == "live":  # it continues only once the source has grown; any other begins as at a start
            world.order("link", "pause", LINK, "--topic", world.topic)
        with world.mirror(mirror):
            growth = ((regrow - left_out, "plain"), (left_out, "left_out"))
            self._restore(cluster, copy, number, partition, growth, stamp)
        if mirror == "live":
            world.order("link", "resume", LINK, "--topic", world.topic)
        self._look(DEAD)
        if again:
            self._settle()
            self._restore(cluster, earlier, number, partition, [(again, "plain")], stamp)
            self._look(DEAD)

    def _restore(
        self,
        cluster: Cluster,
        copy: Path,
        number: int,
        partition: int,
        growth: Iterable[tuple[int, str]],
        stamp: str,
    ) -> None:
        """Restore a cluster from a copy, and write to its topic of `number` partitions; `growth`: how much, of which
        kind."""
        cluster.set_back(copy)
        cluster.wait_ready(self._world.topic, number)
        if cluster is self._world.side("target"):
            self._target_lost(range(number))
        for count, kind in growth:
            if count:
                self._world.load.write(partition, count, {"per_batch": 20, "stamp": stamp, "what": kind})

    def _target_lost(self, partitions: Iterable[int]) -> None:
        """Records from before the current incarnation may be gone, too."""
        for partition in partitions:
            self.touched.add(partition)
            if partition in self.history:
                self.history[partition] = min(self.history[partition], self._target_end(partition))

    def purge(self, side: str, partition: int, part: float) -> None:
        """DeleteRecords below an offset between the log's start and its end."""
        world, cluster = self._world, self._world.side(side)
        if self._number(cluster) <= partition:
            return
        start, end = cluster.ends(world.topic, partition, committed=world.plan.committed)
        before = start + int((end - start) * part)
        if side == "target":
            self.touched.add(partition)
        if cluster.purge(world.topic, partition, before):
            self._look(PURGED)

    def purge_missed(self, side: str, partition: int, part: float, count: int, mirror: str) -> None:
        """DeleteRecords of records, some of which the mirror may not have read yet."""
        self._settle()
        with self._world.mirror(mirror):
            self._world.load.write(self._place(partition), count, {"per_batch": 10})
            self.purge(side, self._place(partition), part)

    def undo_purge(self, side: str, partition: int, mirror: str) -> None:
        """A broker crashes before it has written where its logs begin: they begin where their segments do."""
        world, cluster = self._world, self._world.side(side)
        number = self._number(cluster)
        if number <= partition:
            return
        with world.mirror(mirror):
            cluster.forget_start(world.topic, partition)
            cluster.wait_ready(world.topic, number)
        self._look(PURGED)

    def recreate(self, side: str, mirror: str) -> None:
        """The topic is deleted and recreated."""
        world, cluster = self._world, self._world.side(side)
        with world.mirror(mirror):
            number = self._number(cluster)
            if not number:
                return
            cluster.delete(world.topic)
            if side == "source":
                world.create_source()
            else:
                self.touched.update(range(number))
                self.history.clear()
                cluster.create(world.topic, number, {"retention.ms": "-1"})
        self._look(DEAD)

    def grow(self, by: int) -> None:
        """The source gets partitions."""
        self._world.partitions += by
        self._world.source.grow(self._world.topic, self._world.partitions)

    def restart(self, side: str, *, cleanly: bool) -> None:
        """A broker is stopped or killed, and started; it loses nothing."""
        cluster = self._world.side(side)
        number = self._number(cluster)
        cluster.restart(cleanly=cleanly)
        if number:
            cluster.wait_ready(self._world.topic, number)

    # -- settings ----------------------------------------------------------------------------------

    def set_target(self, name: str, value: str) -> None:
        """A setting of the target's topic is changed."""
        world = self._world
        if world.target.partitions(world.topic):
            if name == "retention.ms":
                self.touched.update(range(world.partitions))
            world.target.set(world.topic, name, value)

    def set_removing(self, side: str, name: str, value: str, mirror: str) -> None:
        """A setting by which brokers remove records is changed, while a mirror is live, frozen, killed or stopped; one
        that would remove all new ones, too, is soon set back."""
        world, cluster = self._world, self._world.side(side)
        self._settle()
        if not self._number(cluster):
            return
        with world.mirror(mirror):
            cluster.set(world.topic, name, value)
            if (name, value) in REMOVES_ALL:
                time.sleep(_REMOVES_WITHIN_SECONDS)
                cluster.set(world.topic, name, world.plan.settings.get(name, FOREVER.get(name)))
                time.sleep(_FORGETS_WITHIN_SECONDS)
        self._settle(_TAKEN_UP_SECONDS)  # a live mirror may have followed, and follow again
        self.touched.update(range(world.partitions))
        self._look(PURGED)

    def forget_producers(self) -> None:
        """The target forgets every producer."""
        self._world.target.set_broker("producer.id.expiration.ms", "100")
        time.sleep(_FORGETS_WITHIN_SECONDS)
        self._world.target.set_broker("producer.id.expiration.ms", None)

    # -- records that the target refuses -----------------------------------------------------------

    def refuse(self, partition: int, by: str, before: int, large: int, behind: int, mirror: str, **shape: Any) -> None:
        """Records that are too large for the target, with small ones before and after them, while the target's
        responses are late: the mirror has read further when it meets them, and earlier ones aren't acknowledged.

        `by`: "mirror", which knows the target's limit: the source accepted the record while its own limit, which the
        mirror copies, was higher for a moment; the problem must stay until `relent`. "target": the limit there is
        lowered while the mirror is frozen, which the mirror corrects in a moment.
        """
        world, partition = self._world, self._place(partition)
        self._settle()
        if world.target.partitions(world.topic) <= partition:
            return
        large_shape = shape | {"size": _ABOVE_LIMIT if by == "mirror" else _ABOVE_LOWERED}
        parts = [(before, shape), (large, large_shape), (behind, shape)]
        late = told_in(world.control)
        late.write_text(str(_LATE_SECONDS))
        try:
            with world.mirror(mirror if by == "mirror" else "frozen"):
                if by == "mirror":
                    world.source.set(world.topic, _LIMIT, _RAISED)
                    time.sleep(_LEARNS_SECONDS)
                world.load.flow(partition, parts)
                if by == "mirror":
                    world.source.set(world.topic, _LIMIT, world.plan.settings.get(_LIMIT))
                else:
                    world.target.set(world.topic, _LIMIT, _LOWERED)
            self._settle(_TAKEN_UP_SECONDS)
        finally:
            late.unlink()

    def relent(self) -> None:
        """The source accepts large records again, and so will the target."""
        self._world.source.set(self._world.topic, _LIMIT, _RAISED)

    # -- workers -----------------------------------------------------------------------------------

    def kill(self, *, back: bool) -> None:
        """SIGKILL of the worker, started again at once or only with the next action."""
        self._world.kill()
        if back:
            self._world.start()

    def kill_at(self, point: str, pass_by: int, partition: int, count: int, **shape: Any) -> None:  # noqa: ARG002 - `arm`
        """The worker dies at a fault point; started again at once."""
        world = self._world
        assert world.worker is not None  # noqa: S101 - `play` has started it
        world.load.write(self._place(partition), count, shape)
        world.worker.wait(_DIES_WITHIN_SECONDS)
        world.disarm()
        world.start()

    def hand_over(self) -> None:
        """Another worker joins, and the first one ends cleanly."""
        world = self._world
        first = world.worker
        assert first is not None  # noqa: S101 - `play` has started it
        world.worker = world.another()
        self._settle(_TAKEN_UP_SECONDS)
        world.stop(first)

    def freeze(self, partition: int, count: int, per_batch: int) -> None:
        """SIGSTOP of the worker while it copies a backlog; another takes over, and then it wakes.

        With several records per batch it stops at the moment at which it has decided to send.
        """
        world, partition = self._world, self._place(partition)
        first = world.worker
        assert first is not None  # noqa: S101 - as above
        self._settle()
        world.kill()
        shape = {"per_batch": per_batch}
        world.load.write(partition, count, shape)
        begun = self._target_end(partition)
        if per_batch > 1:
            world.arm("before_send", 0, signal.SIGSTOP)
        first.again()
        if per_batch > 1:
            self._wait(_TAKE_OVER_SECONDS, lambda: not world.control.exists())
        else:
            self._wait(_TAKE_OVER_SECONDS, lambda: self._target_end(partition) > begun)
        world.disarm()
        first.send(signal.SIGSTOP)
        second = world.another()
        goal = world.source.ends(world.topic, partition, committed=world.plan.committed)[1]
        self._wait(_TAKE_OVER_SECONDS, lambda: self._mirrored(partition) >= goal)
        world.load.write(partition, 200, shape)
        asleep = _cpu_seconds(first.process.pid)
        first.send(signal.SIGCONT)
        self._wait(
            _WAKES_WITHIN_SECONDS,
            lambda: first.process.poll() is not None or _cpu_seconds(first.process.pid) - asleep > _AWAKE_CPU_SECONDS,
        )
        world.stop(first)
        world.worker = second

    def _target_end(self, partition: int) -> int:
        world = self._world
        there = world.target
        return (
            there.ends(world.topic, partition, committed=False)[1]
            if world.target.partitions(world.topic) > partition
            else 0
        )

    def _mirrored(self, partition: int) -> int:
        status = self._world.status() or {"partitions": []}
        return max((p["mirrored_through"] or 0 for p in status["partitions"] if p["partition"] == partition), default=0)

    @staticmethod
    def _wait(seconds: float, ask: Callable[[], bool]) -> None:
        """Wait until the condition holds, or the time is over: then the state is judged as it is."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not ask():
            time.sleep(0.02)

    # -- the store ---------------------------------------------------------------------------------

    def copy_store(self) -> None:
        """Copy the store."""
        self._world.copy_store()

    def restore_store(self) -> None:
        """Replace the store with the copy."""
        self._world.kill()
        self._world.restore_store()
        self._world.start()

    def lose_store(self, partition: int, count: int, mirror: str, **shape: Any) -> None:
        """The store's files are removed, and a new one is filled from the copy on the target."""
        if self._settle(_TAKEN_UP_SECONDS) is None:  # a copy has begun
            raise SoakError("drkit status fails")
        self._world.load.write(self._place(partition), count, shape)
        self._world.lose_store(mirror)
        self._world.recover_store()
        self._world.start()

    # -- the operator ------------------------------------------------------------------------------

    def accept(self, *, needed: bool, purged: bool, twice: bool, mirror: str = "live") -> None:
        """The topic is given up and mirrored again from its start.

        `needed`: only if a partition is halted; `purged`: the source's records are removed before; `twice`: the
        mirror is started again afterwards. Where it is down meanwhile, what status says then is judged here.
        """
        world = self._world
        status = self._settle()
        if status is None:
            raise SoakError("drkit status fails")
        halted = [p for p in status["problems"] if p["halted"] and p["topic"] == world.topic]
        if needed and not halted:
            return
        for number in range(world.partitions) if purged else ():
            self.purge("source", number, 1.0)
        for name in ("max.message.bytes", "compression.type"):
            if world.target.partitions(world.topic):
                world.target.set(world.topic, name, None)
        with world.mirror(mirror):
            ends = {each: self._target_end(each) for each in range(world.target.partitions(world.topic))}
            world.order("link", "resume", LINK, "--topic", world.topic, "--accept-recreated")
            self.history.update(ends)
            world.journal.arrived.clear()
            if mirror in {"killed", "stopped"}:
                self._judge_accepted(ends)
        for _ in range(1 + twice):
            self._settle(_TAKEN_UP_SECONDS)
            world.kill()
            world.start()

    def hold(self, partition: int, records: int, regrow: int) -> None:
        """The topic is paused, its source is cut and grows: the mirror runs and fetches nothing of it. The status
        meanwhile is judged here, because no quiet point is reached."""
        world = self._world
        status = self._settle()
        if status is None:
            raise SoakError("drkit status fails")
        if any(problem["halted"] for problem in status["problems"]):
            return  # they would be retried when the topic is resumed
        before = oracle.missing(self._seen(self._place(partition), {}), world.journal)
        world.order("link", "pause", LINK, "--topic", world.topic)
        try:
            self._hurt("source", partition, regrow, "live", "now", caught_up=False, cleanly=True, records=records)
            self._judge_held(self._place(partition), before)
        finally:
            world.ask("link", "resume", LINK, "--topic", world.topic)

    def fail_over(self, partition: int, count: int, part: float, point: str, mirror: str, **shape: Any) -> None:
        """The last action: the source dies, while a mirror is live or killed before, and the link is failed over.
        Judged is what consumers of the target read then. `part`: where the group stands in the log; `point`: the fault
        point at which the mirror dies while it mirrors the last records, "": none."""
        world = self._world
        number = self._number(world.source)
        stands = {each: self._within(each, part) for each in range(number)}
        world.source.commit(world.topic, world.topic, stands)
        if not point:
            self._settle(_TAKEN_UP_SECONDS)  # a mirror captures the group
        world.load.write(self._place(partition), count, shape)
        if point and (worker := world.worker) is not None:
            end = world.source.ends(world.topic, self._place(partition), committed=world.plan.committed)[1]
            self._wait(
                _ANSWERS_WITHIN_SECONDS,
                lambda: worker.process.poll() is not None or self._mirrored(self._place(partition)) >= end,
            )
            world.disarm()
        if point or mirror == "killed":
            world.kill()
        left = {each: world.source.read(world.topic, each, committed=world.plan.committed) for each in range(number)}
        with world.source.away():
            world.expect_end()
            code, said = world.ask(*_FAIL_OVER)
            outcome = said.get("error") or {
                each["partition"]: (each["source_offset"], each["target_offset"], each["translation"])
                for each in said["groups"]
            }
            self._say(f"      the failover ends with {code}: {outcome}")
            if code not in {ExitCode.OK, ExitCode.REFUSED, ExitCode.OBJECTIVE_MISSED}:
                world.ended.append(f"the failover ends with {code}: {said.get('error')}")
            elif code != ExitCode.REFUSED:
                self._judge_failed_over(stands, left, said["groups"])
        world.source.wait_ready(world.topic, number)
        world.over = True

    def _within(self, partition: int, part: float) -> int:
        world = self._world
        start, end = world.source.ends(world.topic, partition, committed=world.plan.committed)
        return start + int((end - start) * part)

    def _judge_failed_over(
        self, stands: dict[int, int], left: dict[int, Content], groups: Sequence[dict[str, Any]]
    ) -> None:
        world = self._world
        status = world.status() or {}
        moved = {each["partition"]: each for each in groups if each["topic"] == world.topic}
        committed = world.target.committed(world.topic, world.topic, stands)
        for number in range(world.target.partitions(world.topic)):
            answer = moved.get(number)
            there = committed.get(number)
            if answer is not None and answer["target_offset"] != there:
                world.ended.append(f"partition {number}, failed over: the group stands at {there}, not as in {answer}")
            seen = replace(self._seen(number, status, source=left[number]), paused=True)
            exact = answer is not None and answer["translation"] == "exact"
            to = None if answer is None or there is None else (answer["source_offset"], there, exact)
            world.ended += oracle.failed_over(seen, world.journal, stands[number], to)

    def _judge_held(self, partition: int, before: frozenset[bytes]) -> None:
        world, status = self._world, self._reached()
        wrong = oracle.while_held(self._seen(partition, status, before), world.journal)
        if status["state"] == "mirroring":
            wrong.append("a link with a paused topic is reported as mirroring")
        world.ended += [f"while the topic was paused: {what}" for what in wrong]

    def _judge_accepted(self, partitions: Iterable[int]) -> None:
        world, status = self._world, self._reached()
        for number in partitions:
            wrong = oracle.accepted(self._seen(number, status))
            world.ended += [f"before the accepted topic was mirrored: {what}" for what in wrong]

    def _reached(self) -> dict[str, Any]:
        """The status, once both clusters answer: on a busy machine one may not do so in time."""
        found: list[dict[str, Any]] = []

        def ask() -> bool:
            status = self._world.status()
            if status is not None and status["source_reachable"] and status["target_reachable"]:
                found.append(status)
            return bool(found)

        wait_for("a status of both clusters", _ANSWERS_WITHIN_SECONDS, ask)
        return found[-1]

    def _seen(
        self,
        partition: int,
        status: dict[str, Any],
        given_up: frozenset[bytes] = frozenset(),
        source: Content | None = None,
    ) -> oracle.Seen:
        world, topic = self._world, self._world.topic
        there = world.target.partitions(topic) > partition
        return oracle.Seen(
            partition,
            source or world.source.read(topic, partition, committed=world.plan.committed),
            world.target.read(topic, partition, committed=False, ignore=PROVENANCE) if there else Content([], 0, 0),
            next((p for p in status.get("partitions", ()) if (p["topic"], p["partition"]) == (topic, partition)), None),
            [p for p in status.get("problems", ()) if p["topic"] == topic and p["partition"] in {None, partition}],
            lambda offset: world.translate(partition, offset),
            self.history.get(partition, 0),
            given_up=given_up,
        )

    def quiet(self) -> None:
        """A quiet point: the caller judges."""

    # -- what happened to both sides -----------------------------------------------------------------

    def _look(self, cause: str) -> None:
        world = self._world
        for number in range(world.partitions):
            content = world.source.read(world.topic, number, committed=world.plan.committed)
            world.journal.look(number, content.records, cause)

    def _number(self, cluster: Cluster) -> int:
        """The number of the topic's partitions on a side; on the source all of them, once they answer."""
        if cluster is self._world.source:
            cluster.wait_ready(self._world.topic, self._world.partitions)
        return cluster.partitions(self._world.topic)

    def _place(self, partition: int) -> int:
        return partition % self._world.partitions


def _cpu_seconds(pid: int) -> float:
    """What a process has worked so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
