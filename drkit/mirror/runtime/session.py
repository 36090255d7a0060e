"""One run of a link's mirror: its parts, its threads, the data thread's loop, an orderly stop.

    data thread (the caller's)   engine rounds; everything that touches the engine
    orders, worker               the link's control; this worker among the others (`drkit.mirror.workers.rebalance`)
    topics                       topic sync: which partitions may run
    resume                       where partitions continue, or why not (`drkit.mirror.runtime.partition_starter`)
    observe, save                log ends; watermarks
    users                        whether others use the target (`drkit.mirror.health.target_users`)
    target                       what the target has lost (`drkit.mirror.health.truncation_watches`, `purge_watch`)
    source                       what the source loses of what stands still (`truncation_watches`), and transactions
                                 that hang there (`open_transactions`)
    groups, transactions         positions of consumer groups; what they commit in transactions
    report, statistics, canary   what the run shows of itself (`drkit.mirror.runtime.reporting`)

The data thread never waits for a cluster's admin calls or (except for mapping rows) for the store, so a slow
partition or a hanging observation delays no other partition.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from drkit.config import Config
from drkit.config.schema.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.kafka.admin.logs.producers import TransactionAdmin
from drkit.kafka.groups.group_admin import GroupAdmin
from drkit.mirror.control import Orders, check_not_held, read_orders
from drkit.mirror.engine.interface import NOT_MOVING, Engine, Incident, Notice, Stopped
from drkit.mirror.groups.deleted_groups import DeletedGroups
from drkit.mirror.groups.group_capture import CAPTURE_SECONDS, GroupCapture
from drkit.mirror.groups.transaction_watch import LOOK_SECONDS as TRANSACTIONS_SECONDS
from drkit.mirror.groups.transaction_watch import TransactionWatch
from drkit.mirror.health.open_transactions import OpenTransactions
from drkit.mirror.health.problems import Problems
from drkit.mirror.health.purge_watch import PurgeWatch
from drkit.mirror.health.returned_records import ReturnedRecords
from drkit.mirror.health.stalls import Stalls
from drkit.mirror.health.target_users import TargetUsers
from drkit.mirror.health.truncation_watches import SourceTruncationWatch, TargetEnds
from drkit.mirror.progress import MirrorProgress
from drkit.mirror.resume.partition_resume import Resumed
from drkit.mirror.runtime.catch_up import CatchUp
from drkit.mirror.runtime.events import OnEvent, ProblemEvent
from drkit.mirror.runtime.mapping_writer import MappingWriter
from drkit.mirror.runtime.partition_starter import PartitionStarter
from drkit.mirror.runtime.periodic_task import Periodic
from drkit.mirror.runtime.pipeline_factory import PipelineFactory
from drkit.mirror.runtime.reporting import Reporting, RunView
from drkit.mirror.topics.change_permission import ChangePermission
from drkit.mirror.topics.topic_sync import ReadyTopic, TopicSync
from drkit.mirror.workers.assignment import Assignment
from drkit.mirror.workers.fenced_store import fenced_stores
from drkit.mirror.workers.leader_lease import TTL_SECONDS, LeaderLease, WhileLeading
from drkit.mirror.workers.rebalance import Rebalance
from drkit.mirror.workers.worker import HEARTBEAT_SECONDS
from drkit.model.errors import BrokerTooOld, DrkitError, Fenced, OtherSchema, Refused, StoreMissing, Unreachable
from drkit.model.link_state import Problem
from drkit.model.process import keeping_context
from drkit.model.topology import Link, TopicPartition
from drkit.model.wording import and_more
from drkit.state_topic.guard import check_may_begin
from drkit.state_topic.other_store import check_one_store, worker_client_id
from drkit.store.api import Store
from drkit.store.link_notes import check_clusters, note_clusters
from drkit.store.links_beside import links_beside

log = logging.getLogger(__name__)

_WAIT_SECONDS = 0.05
_ORDERS_SECONDS = 0.25
"""A failover waits for this and for an orderly stop: a second, whatever the source does."""
_DRAIN_SECONDS = 5.0
_JOIN_SECONDS = 15.0
_ADMIN_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_USERS_SHARE = 0.02
_BETWEEN_LOOKS_SECONDS = 0.2
_TOPICS_SHARE = 0.02
"""Part of a core: a thousand topics are compared every few seconds; at once where some are to be created."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run.

    `topic_seconds`: time between topic syncs. `patience_seconds`: while catching up, how long nothing may move while a
    cluster or the store is down. `watchdog_seconds`: how long a partition may be stuck; None: forever. `engine`: makes
    an engine that moves the records outside of this process (arguments as `PipelineFactory.engine`'s).
    """

    until_caught_up: bool = False
    topic_seconds: float = 3.0
    patience_seconds: float = 60.0
    watchdog_seconds: float | None = None
    engine: Callable[..., Engine] | None = None


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """How a run ended. `caught_up`: everything that the source held at the start is on the target and recorded;
    None where that wasn't requested. `halted`: what is halted, and why. `missing`: what the source holds and no mirror
    brings to the target. `held_back`: the source offsets behind its last stable ones then, which can't be read yet.
    `gone`: topics that were mirrored and that the source no longer has; a source that has none of them isn't caught up
    with. `empty`: it had no topic that the link covers.
    """

    link: Link
    records: int
    caught_up: bool | None
    halted: tuple[Problem, ...]
    missing: tuple[Problem, ...] = ()
    held_back: int = 0
    gone: tuple[str, ...] = ()
    empty: bool = False


class Session:
    """One run: the parts, the threads, the data thread's loop."""

    _catch_up: CatchUp  # it needs the engine, which asks for its goals later
    _notices: dict[tuple[TopicPartition, str], Notice]  # the engine's newest of each kind, not stored yet

    def __init__(
        self,
        config: Config,
        link: Link,
        store: Store,
        lease: LeaderLease,
        options: Options,
        stop: threading.Event,
        tell: OnEvent,
    ) -> None:
        source, target = config.clusters[link.id.source], config.clusters[link.id.target]
        self._link = link
        self._store = store
        self._stop, self._left, self._notices = stop, threading.Event(), {}
        self._options = options
        self._orders = Orders()
        self._copy, self._cluster_ids = "", ("", "")  # the copy's name, once the run may begin; the clusters' last ids
        self._forgotten: Refused | None = None
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()  # calls for the data thread
        self._ending = ending = threading.Event()

        # the clusters
        self._source = ClusterAdmin(link.id.source, source, timeout_seconds=_ADMIN_SECONDS)
        self._target = ClusterAdmin(link.id.target, target, timeout_seconds=_ADMIN_SECONDS)
        self._group_admin = GroupAdmin(link.id.source, source, timeout_seconds=_ADMIN_SECONDS)
        self._pipeline = PipelineFactory(
            config,
            link,
            self._source,
            self._target,
            links_beside(store, link, [each.link() for each in config.links]),
            store,
        )
        self._check_may_begin = partial(check_may_begin, link, store, self._target, target, self._source.cluster_id)
        self._check_one_store = partial(check_one_store, target, link, store, config.store.plain_url)

        # threads that others wake
        self._topics = Periodic(
            "topics", options.topic_seconds, self._one_look(self._look_at_topics), ending, share=_TOPICS_SHARE
        )
        self._resume = Periodic("resume", 0.2, self._one_look(self._resume_partitions), ending)
        self._save = Periodic("save", 1.0, self._one_look(self._save_watermarks), ending)
        self._groups = Periodic("groups", CAPTURE_SECONDS, self._one_look(self._capture_groups), ending, promptly=True)

        # partition ownership; what another worker may own by now is stored by `own` and `leading` only
        own, leading = fenced_stores(store, link.id, lambda: self._worker)
        self._problems = Problems(own, link.id, lambda problem: tell(ProblemEvent(link.id, problem)))
        self._rebalance = Rebalance(
            target,
            link,
            store,
            lease,
            partial(Assignment, self._problems.awaits_operator),
            forget=self._forget_soon,
            wake=self._resume.wake,
            client_id=lambda: worker_client_id(self._copy, config.store.plain_url, lease.owner),
            ending=ending,
        )
        self._assignment, self._worker = self._rebalance.assignment, self._rebalance.worker
        self._target.change_only_with(ChangePermission(link, store, self._worker.valid, self._worker.may_write))

        # the path of a record
        mappings, may_write = self._rebalance.mappings, self._worker.valid
        self._rows = MappingWriter(link.id, mappings, may_write, self._rebalance.fenced, ending)
        # the link's own engine mirrors on; another one ends where the run does
        other = options.engine and partial(options.engine, goals=lambda: self._catch_up.goals)
        self._engine = (other or self._pipeline.engine)(keep_rows=self._rows.keep, may_produce=may_write)
        self._progress = MirrorProgress(
            link.id,
            self._source,
            self._target,
            mappings,
            self._engine,
            committed=link.committed,
            range_digests=link.keeps_range_digests,
        )

        # topics, and what halts partitions
        links = [each.link().id for each in config.links]
        sides = self._pipeline.sides(store)
        self._sync = TopicSync(
            link,
            self._source,
            self._target,
            leading,
            self._problems,
            links=links,
            sides=sides,
            lease_epoch=lambda: lease.epoch,
        )
        self._stalls = Stalls(self._problems, self._engine.waits_for, time.monotonic)
        self._purges = PurgeWatch(link, self._source, self._target, own, self._problems, self._pipeline.gone(store))
        self._returned = ReturnedRecords(link.id, own, self._problems)
        self._returned_filler = self._pipeline.returned_filler(own, self._problems)
        self._target_ends = TargetEnds(link, self._target, self._engine.at_rest)
        self._users = TargetUsers(link, self._target, lambda: {tp.topic for tp in self._assignment.partitions()})
        self._open = OpenTransactions(
            link.id,
            self._source,
            TransactionAdmin(link.id.source, source, timeout_seconds=_ADMIN_SECONDS),
            self._problems,
        )
        self._source_cuts = SourceTruncationWatch(link, self._source, leading, self._problems.through(leading), sides)
        self._starter = PartitionStarter(
            link.id,
            self._rebalance,
            self._pipeline.resumer(mappings, self._problems, own),
            self._problems,
            self._stalls,
            self._purges,
            self._returned,
            positions=self._engine.positions,
            keep_progress=self._keep_progress,
            check_topics=self._topics.wake,
            start=self._start_soon,
            halt=self._progress.halt,
            unhalt=self._progress.unhalt,
            leave=self._progress.leave,
            ending=ending,
        )
        self._catch_up = CatchUp(
            link.id,
            store,
            self._source,
            self._target,
            self._engine,
            self._progress,
            self._problems,
            options.patience_seconds,
            committed=link.committed,
        )

        # consumer groups
        self._transactions = TransactionWatch(link, source, self._source, leading, self._worker.leads)
        self._capture = WhileLeading(
            lease,
            lambda: GroupCapture(
                link,
                self._group_admin,
                self._source,
                leading,
                DeletedGroups(link.id, source, self._source, leading, self._problems.parted),
                suspected=self._transactions.suspected,
            ),
        )
        self._watching = Periodic(
            "transactions", TRANSACTIONS_SECONDS, self._one_look(self._transactions.check), ending
        )

        self._watching_users = Periodic("users", 1.0, self._watch_users, ending, share=_USERS_SHARE)

        self._threads = [
            Periodic("orders", _ORDERS_SECONDS, self._read_orders, ending),
            Periodic("worker", HEARTBEAT_SECONDS, self._rebalance.heartbeat, ending),
            self._topics,
            self._resume,
            Periodic("observe", 1.0, self._progress.observe, ending),
            Periodic("target", 1.0, self._one_look(self._watch_target), ending),
            Periodic("source", 2.0, self._one_look(self._watch_source), ending),
            self._watching_users,
            self._save,
            self._groups,
            *((self._watching,) if link.committed and not options.until_caught_up else ()),
        ]
        self._guard = threading.Thread(target=keeping_context(self._watch), name="drkit-guard", daemon=True)
        self._reporting = self._report_to(tell, (self._source, source, target))

    def _report_to(self, tell: OnEvent, clusters: tuple[ClusterAdmin, ClusterConfig, ClusterConfig]) -> Reporting:
        view = RunView(
            self._link,
            self._worker.owner,
            self._engine,
            self._progress,
            self._problems,
            self._state,
            self._holds,
            self._worker.leads,
            self._stalls,
            self._one_look,
        )
        return Reporting(
            view,
            self._store,
            tell,
            clusters,
            canary=not self._options.until_caught_up,
            watchdog_seconds=self._options.watchdog_seconds,
            ending=self._ending,
        )

    @property
    def stuck(self) -> DrkitError | None:
        """Why the watchdog ends this run, or None."""
        return self._reporting.stuck

    def leave(self) -> None:
        """Stop normally; any thread may call it, at any time."""
        self._left.set()

    # -- the data thread ---------------------------------------------------------------------------

    def run(self) -> MirrorReport:
        """Start the threads, move records until the end, stop normally."""
        caught_up = False
        gone: tuple[str, ...] = ()
        replaced: tuple[str, ...] = ()
        try:
            self._begin()
            self._problems.follow()
            self._guard.start()
            self._rebalance.start()
            for thread in self._threads:
                thread.start()
            self._reporting.start()
            try:
                caught_up = self._loop()
            except Stopped:
                log.debug("%s: told to stop while waiting", self._link.id)
            self._raise_troubles()
            self._finish(caught_up=caught_up)
            caught_up = caught_up and self._still_there()
            held = self._catch_up.held_back() if caught_up else 0
            if caught_up:
                gone, replaced = self._gone()
            empty = not self._catch_up.goals
        finally:
            self._close()
        if replaced:
            log.warning("%s: accepted as new topics meanwhile: %s. Run it again", self._link.id, and_more(replaced))
        return MirrorReport(
            self._link,
            self._engine.moved(),
            caught_up and not replaced and not (gone and empty) if self._options.until_caught_up else None,
            (*self._problems.halted(), *self._catch_up.halted),
            self._problems.missing(),
            held,
            gone,
            empty and caught_up and not gone,
        )

    def _begin(self) -> None:
        """Announce this worker; wait for a store that is down as long as a dead worker's lease may last."""
        deadline = time.monotonic() + TTL_SECONDS
        while not self._stop.is_set():
            try:
                self._worker.begin()
            except Unreachable as error:
                if time.monotonic() > deadline:
                    raise
                log.warning("waiting for the store: %s", error)
                self._stop.wait(1.0)
            else:
                return

    def _loop(self) -> bool:
        """Move records; True once caught up (if requested), False when the run should end."""
        obeyed: Orders | None = None
        looked_at = 0.0
        while not self._ending.is_set():
            while not self._inbox.empty():
                self._inbox.get()()
                obeyed = None
            self._rebalance.serve(self._engine, self._progress)
            if obeyed is not self._orders:
                obeyed = self._orders
                self._obey(obeyed)
            for incident in self._round():
                self._report(incident)
            at = time.monotonic()
            if self._options.until_caught_up and at - looked_at > _LOOK_SECONDS:
                looked_at = at
                check_not_held(self._link, obeyed)
                if self._catch_up.done(self._save.wake):
                    return True
                self._catch_up.lose_patience(self._threads)
        return False

    def _round(self) -> list[Incident]:
        try:
            return self._engine.poll(_WAIT_SECONDS) if self._worker.valid() else self._engine.serve(_WAIT_SECONDS)
        except Fenced:  # its other requests have unknown outcomes: everything is resumed again
            self._rebalance.restart()
            return []

    def _obey(self, orders: Orders) -> None:
        """Hold or release partitions as ordered."""
        hold: list[TopicPartition] = []
        go: list[TopicPartition] = []
        for tp in self._assignment.running():
            (hold if orders.holds(tp.topic) else go).append(tp)
        self._engine.hold(hold)
        self._engine.release(go)

    def _start(self, resumed: Sequence[Resumed], take: int) -> None:
        """Start resumed partitions, unless they were taken again after that take."""
        going = [r for r in resumed if self._assignment.started(r.start.tp, r.start.epoch, take)]
        self._target_ends.begin([each.start for each in going])
        self._engine.start([each.start for each in going])
        self._progress.track((each.watermark, each.start.target_topic) for each in going)

    def _forget(self, tps: Collection[TopicPartition]) -> None:
        """Stop mirroring these."""
        self._engine.forget(tps)
        self._progress.forget(tps)

    # -- orders to the data thread, done in the order in which they were given ----------------------

    def _start_soon(self, resumed: Sequence[Resumed], take: int) -> None:
        self._inbox.put(partial(self._start, resumed, take))

    def _forget_soon(self, tps: Collection[TopicPartition]) -> None:
        self._inbox.put(partial(self._forget, tps))

    # -- the other threads -------------------------------------------------------------------------

    def _one_look(self, work: Callable[[], None]) -> Callable[[], None]:
        return lambda: self._worker.one_look(work)

    def _watch(self) -> None:
        """End the run if it is told to stop, refused, the lease is lost, or a thread failed."""
        while not self._ending.wait(_WAIT_SECONDS):
            failed = any(thread.failure is not None or self._too_old(thread) for thread in self._threads)
            told = self._stop.is_set() or self._left.is_set()
            if told or self._orders.refusal or failed or self._reporting.ends:
                self._ending.set()

    def _read_orders(self) -> None:
        try:
            orders = self._pipeline.orders(read_orders(self._store, self._link))
        except (OtherSchema, StoreMissing) as error:  # migrated, or replaced: it must be opened again
            orders = Orders(refusal=error)
        orders = replace(orders, refusal=orders.refusal or self._forgotten)
        if orders != self._orders:
            self._orders = orders

    def _look_at_topics(self) -> None:
        if not self._pipeline.may_run() or self._forgotten is not None:
            return  # the orders say why
        try:
            self._check_clusters()
        except Refused as error:
            self._forgotten = error
            return
        self._pipeline.see_producer_memory()  # before the first partition starts
        leads = self._worker.leads()
        for problem in self._problems.follow():
            about = {"topic": problem.topic, "partition": problem.partition}
            log.info("%s: %s of %s was cleared", self._link.id, problem.kind, problem.topic, extra=about)
            self._assignment.hurry(problem.topic)
        if not self._run_topics(self._sync.sync(self._run_topics) if leads else self._sync.follow()):
            return
        if not self._sync.in_step and leads:
            self._topics.wake()
        elif self._options.until_caught_up and self._sync.in_step and self._sync.decided:
            self._catch_up.begin(self._assignment.partitions())

    def _check_clusters(self) -> None:
        """Check that both clusters are the link's: each may be replaced while this runs.

        Raises:
            Refused: one is another cluster, or the store isn't the one that knows the link.
        """
        ids = self._source.cluster_id(), self._target.cluster_id()
        if ids == self._cluster_ids:
            return
        check_clusters(self._store, self._link, *ids)
        if not self._copy:
            copy = self._check_may_begin()
            self._check_one_store()
            note_clusters(self._store, self._link.id, source=ids[0], target=ids[1])
            self._copy = copy
        self._cluster_ids = ids

    def _run_topics(self, ready: dict[str, ReadyTopic]) -> bool:
        """Mirror these topics and no others; False where the link may not run."""
        if not self._pipeline.may_run(ready):
            return False
        gone = self._rebalance.topics(ready)
        if gone:
            self._forget_soon(gone)
        self._resume.wake()
        return True

    def _report(self, incident: Incident) -> None:
        """Report a halted partition: it is handled soon."""
        self._starter.report(incident)
        self._resume.wake()

    def _resume_partitions(self) -> None:
        self._starter.run()

    def _keep_progress(self) -> None:
        """Store positions; first forget partitions that another worker has taken."""
        try:
            self._progress.save()
        except Fenced as error:
            self._rebalance.fenced(error)

    def _keep_last_progress(self) -> None:
        """On the data thread, at the end: forget partitions that another worker has taken at once."""
        try:
            self._progress.save(everything=True)
        except Fenced as error:
            self._forget(error.partitions)
            self._progress.save(everything=True)

    def _save_watermarks(self) -> None:
        self._take_notices()
        if self._worker.valid():
            for key, (tp, kind, reason, remedy) in list(self._notices.items()):
                self._problems.put(kind, tp.topic, tp.partition, reason, remedy, halted=False)
                del self._notices[key]
            self._keep_progress()
        if self._options.until_caught_up and not self._worker.alone:
            self._catch_up.refresh()

    def _take_notices(self) -> None:
        """Take what the engine has to say: several times a second of each partition that doesn't move, for as long as
        that lasts, and also while nothing can be stored. It says what is to be stored once, so that waits here."""
        for notice in self._engine.notices():
            if notice.kind == NOT_MOVING:
                self._stalls.failed(notice.tp, notice.reason, notice.remedy)
            else:
                self._notices[notice.tp, notice.kind] = notice

    def _watch_target(self) -> None:
        if not self._worker.valid():
            return
        for incident in self._target_ends.check(self._engine.positions(), self._assignment.running()):
            self._report(incident)
        marks = self._progress.just_seen()
        try:
            self._returned_filler.check(marks)
            left = self._purges.check(marks)
            self._returned.check(marks)
        except DrkitError:
            self._progress.see_again(marks)
            raise
        self._progress.see_again(left)

    def _watch_source(self) -> None:
        if not self._worker.valid():
            return
        try:
            if self._worker.leads():
                self._source_cuts.check()
        finally:  # what one look meets keeps the other from nothing
            self._date_open_transactions()
            self._open.check(self._engine.stable_ends(), set(self._assignment.running()))

    def _date_open_transactions(self) -> None:
        """Since when records wait behind transactions that were open before this mirror looked."""
        self._progress.date(self._open.began(self._progress.undated()))

    def _watch_users(self) -> None:
        """Check whether others use the target: needed while there is a backlog, and before any record is copied."""
        if self._link.catch_up.adaptive:
            if not self._users.known:
                self._users.look()
                self._ending.wait(_BETWEEN_LOOKS_SECONDS)
            if not self._users.known or self._engine.statistics().partitions_behind:
                self._users.look()
        self._engine.share_target(self._worker.workers, in_use=self._users.in_use)

    def _capture_groups(self) -> None:
        if self._worker.leads() and self._copy:  # if the store has forgotten the link, recover it first
            self._capture.current().capture()

    def _holds(self, topic: str) -> bool:
        return self._orders.holds(topic)

    def _state(self) -> tuple[str, str | None]:
        if self._orders.paused:
            return "paused", self._orders.reason or None
        beside = (self._groups, self._watching, self._watching_users)  # records move without these
        others = (t.trouble for t in self._threads if t not in beside and t.trouble is not None)
        trouble = self._rows.stalled or next(others, None) or self._rebalance.trouble
        if trouble is not None:
            return "waiting", trouble
        if not self._worker.valid():
            return "waiting", "this worker's note in the store could not be renewed"
        harmful = [*self._problems.halted(), *self._problems.missing()]
        reason = harmful[0].reason if harmful else self._groups.trouble
        return ("mirroring", None) if reason is None else ("degraded", reason)

    # -- the end -----------------------------------------------------------------------------------

    def _raise_troubles(self) -> None:
        """Raise why the run ended, unless that was requested. In-flight records are settled first."""
        failure = next((thread.failure for thread in self._threads if thread.failure is not None), None)
        failure = failure or next(filter(None, map(self._too_old, self._threads)), None) or self._reporting.ends
        if failure is None and self._orders.refusal is None:
            return
        self._finish()
        if failure is not None:
            raise failure
        if self._orders.refusal is not None:
            raise self._orders.refusal

    @staticmethod
    def _too_old(thread: Periodic) -> BrokerTooOld | None:
        """Whether a broker is too old: waiting doesn't help then."""
        return thread.not_let_in if isinstance(thread.not_let_in, BrokerTooOld) else None

    def _finish(self, *, caught_up: bool = False) -> None:
        """Settle requests in flight and store the result, while this worker still holds the partitions."""
        if not self._worker.valid():
            self._engine.abort_unsent()
        if not self._engine.drain(_DRAIN_SECONDS):
            log.warning(
                "%s: some records in flight were not acknowledged; the next start checks for them", self._link.id
            )
        self._ending.set()
        self._save.join(_JOIN_SECONDS)  # it must not overwrite the last watermarks with older ones
        if caught_up:
            self._resume.join(_JOIN_SECONDS)  # it may be about to store that something must be mirrored again
        try:
            if self._worker.valid():
                if caught_up:  # the run may have been shorter than the time between two looks
                    self._date_open_transactions()
                self._keep_last_progress()
                positions = self._engine.positions()
                self._stalls.check((), positions, healthy=False)
                if caught_up:
                    self._stalls.settle(positions)
                if self._options.until_caught_up and self._worker.leads():
                    self._groups.join(_JOIN_SECONDS)
                    self._capture_groups()
        except DrkitError as error:
            log.warning("%s: the last positions could not be kept: %s", self._link.id, error)

    def _still_there(self) -> bool:
        """Whether everything is still mirrored, by this worker or by others: somebody may have removed some of it from
        the target meanwhile, and what is settled and found at the end may move a partition back, or need more of it.

        Raises:
            Unreachable: a cluster or the store doesn't answer; nobody knows.
        """
        self._worker.heartbeat()  # its thread has ended, and what is found here is stored
        self._progress.observe(everything=True)
        self._worker.heartbeat()
        marks = self._progress.current()
        self._purges.judge(marks)
        self._returned.check(marks)
        there = {TopicPartition(self._link.target_topic(mark.topic), mark.partition): mark for mark in marks}
        ends = self._target.log_ends(there, partial=True)
        lost = [target for target, mark in there.items() if ends.get(target, -1) < mark.target_end]
        others, gone = self._catch_up.look_again()
        missed = self._catch_up.missed()
        for tp in [*lost, *gone]:
            log.warning("%s: %s lost its end, or isn't shown, after it had caught up", self._link.id, tp)
        removed = [*self._purges.lacking(others), *self._returned.returned(others)]
        for tp in removed:
            log.warning("%s: %s, which another worker mirrors, lacks records of its source", self._link.id, tp)
        for tp in missed:
            log.warning("%s: of %s not all is mirrored that its source held at the start", self._link.id, tp)
        self._problems.follow()  # what the others have told, too
        return self._resume.join(0) and not (lost or gone or removed or missed)

    def _gone(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The topics that were mirrored and that the source no longer has; those of the goals that are others now."""
        states = sorted(self._store.topic_states(self._link.id))
        deleted = self._problems.gone_topics()
        gone = tuple(topic for topic in states if topic in deleted)
        return gone, tuple(topic for topic in states if topic in self._catch_up.void and topic not in gone)

    def _close(self) -> None:
        self._ending.set()
        for client in (self._source, self._target, self._group_admin, self._open, self._pipeline):
            client.close()  # ends the calls that threads wait for
        self._transactions.give_up()
        stuck = [thread.name for thread in self._threads if not thread.join(_JOIN_SECONDS)]
        if stuck:
            log.warning("%s: still busy at the end: %s", self._link.id, ", ".join(stuck))
        self._transactions.close()
        self._reporting.close()
        self._engine.close()
        self._rebalance.close()
        self._worker.end(settled=not self._engine.unsettled())
