"""Planted defects for the commands of a drill: each must make an experiment of the library fail.

`planted(folder, name)` is the environment for `drkit drill`: Python loads `sitecustomize` from there in every child; it
patches the defect into its command before drkit's own modules are loaded. drkit itself has no code for this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.adversary.fault_points import patch
from chaos.adversary.plants import PLANTS as ADVERSARYS

_IDLE_SECONDS = 10.0
_LEFT_OUT = 50
_CUSTOM = """\
import sys

if {verbs!r} & {{*sys.orig_argv}}:
    from tests.support.drills.drill_plants import put

    put({name!r})
"""


def seal_not_heeded() -> None:
    """The mirror continues regardless of decisions about its link."""

    def make(_: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.mirror.control import Orders  # noqa: PLC0415 - what is patched is loaded first

        return lambda *_: Orders()

    patch("drkit.mirror.control:read_orders", make)


def seal_of_both_directions() -> None:
    """The seal of a link stops the link of the other direction, too."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.model.link_state import Direction  # noqa: PLC0415 - as above

        def read_orders(store: Any, link: Any) -> Any:
            other = store.link_control(link.id.reversed())
            sealed = other is not None and other.direction is Direction.SEALED
            return plain(store, replace(link, id=link.id.reversed()) if sealed else link)

        return read_orders

    patch("drkit.mirror.control:read_orders", make)


def deletions_followed() -> None:
    """Topics deleted on the source are deleted on the target, although the link doesn't ask for it."""
    from drkit.model.topology import Link  # noqa: PLC0415 - as above

    Link.mirrors_deletions = property(lambda _: True)  # type: ignore[method-assign, assignment]
    patch(
        "drkit.mirror.topics.source_growth:SourceGrowth.shows_deletion",
        lambda _: lambda _self, topic_ids, _listed: set(topic_ids),
    )


def gaps_not_told() -> None:
    """Records that the source's retention removed before they were mirrored are silently skipped."""
    patch("drkit.mirror.resume.partition_resume:Resumer._note_gap", lambda _: lambda *_, **__: None)


def fence_believed() -> None:
    """The rules of a fence aren't created, and nobody checks whether writers are denied."""
    patch("drkit.failover.fencing.deny_rules:closing_rules", lambda _: lambda *_: frozenset())
    patch(
        "drkit.failover.fencing.cluster_fence:ClusterFence._denied",
        lambda _: lambda *_: "every broker turns a writer away",
    )


def checksums_not_compared() -> None:
    """Batches are forwarded whether their checksum matches or not."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda data: plain(memoryview(_with_checksums(bytearray(data))))

    patch("drkit.mirror.engine.fetcher:scan", make)


def _with_checksums(data: bytearray) -> bytearray:
    """Fetched bytes, in which each complete batch has a matching checksum."""
    from crc32c import crc32c  # noqa: PLC0415 - as above

    from drkit.kafka.protocol.record_batch import CRC_FROM, HEADER_BYTES, LOG_OVERHEAD  # noqa: PLC0415 - as above

    at = 0
    while len(data) - at >= HEADER_BYTES:
        after = at + LOG_OVERHEAD + int.from_bytes(data[at + 8 : at + 12], "big")
        if after > len(data):
            break
        data[at + CRC_FROM - 4 : at + CRC_FROM] = crc32c(data[at + CRC_FROM : after]).to_bytes(4, "big")
        at = after
    return data


def caught_up_believed() -> None:
    """The old primary is assumed to hold exactly the mirrored records, without a look at its logs."""
    patch("drkit.failover.failback.checks:is_caught_up", lambda _: lambda *_, **__: True)


def silence_not_ended() -> None:
    """A connection with a pending response is waited for forever."""
    patch("drkit.kafka.client.connection:ResponseReader._look", lambda _: lambda _: None)


def range_left_out() -> None:
    """The way back leaves out 50 records of a partition, and its audit calls what it brought clean."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        left: list[int] = []

        def pieces(batches: Any, aborted: Any, position: int, rules: Any) -> Any:
            if not left and sum(each.records_count for each in batches) > 2 * _LEFT_OUT:
                left.append(position)
                position += _LEFT_OUT
            return plain(batches, aborted, position, rules)

        return pieces

    def clean(_: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.failover.context.interfaces import AuditVerdict  # noqa: PLC0415 - as above

        return lambda *_: AuditVerdict("clean", "nothing was compared", None)

    patch("drkit.mirror.engine.admission:pieces", make)
    patch("drkit.cli.wiring.failback_wiring:_Auditor.audit", clean)


def interruption_taken_for_done() -> None:
    """A commit that had begun when the run was killed counts as finished."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.failover.stages.failover_stages import _SeenGroups  # noqa: PLC0415 - as above

        return lambda self, context, portion: _SeenGroups() if context.again else plain(self, context, portion)

    patch("drkit.failover.stages.failover_stages:Commit._look", make)


def other_links_left_alone() -> None:
    """A resumed failover of several links leaves all but the first of them, as if another run had moved them since."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def plan_anew(runner: Any) -> None:
            plain(runner)
            runner.record.elsewhere |= dict.fromkeys(runner.plan.links[1:], "another run moved it")

        return plan_anew

    patch("drkit.failover.site.site_run:_SiteRunner.plan_anew", make)


def aborts_forwarded() -> None:
    """Records of aborted transactions are forwarded like those of committed ones."""
    patch(
        "drkit.mirror.engine.admission:pieces",
        lambda plain: lambda batches, _aborted, position, rules: plain(batches, (), position, rules),
    )


def ends_for_positions() -> None:
    """A group continues at the end of the target's log, whatever it had read."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        return lambda base, mapped, view, *because: replace(
            plain(base, mapped, view, *because), target_offset=view.target_end
        )

    patch("drkit.failover.positions.positions:_by_mapping", make)


def loss_understated() -> None:
    """The failover states that nothing is lost."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def loss_at(partitions: Any, moment: Any) -> Any:
            loss = plain(partitions, moment)
            return replace(loss, records=0, by_topic=tuple(replace(each, records=0) for each in loss.by_topic))

        return loss_at

    patch("drkit.failover.plan.loss:loss_at", make)


def time_believed() -> None:
    """With a moment, a group continues at the first record of that time, whatever it had not read before it."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def by_time(base: Any, mapped: Any, found: int | None, view: Any, at: Any) -> Any:
            end = view.target_end or 0
            timed = end if found is None else min(found, end)
            return replace(plain(base, mapped, found, view, at), target_offset=timed)

        return by_time

    patch("drkit.failover.positions.positions:_by_time", make)


def positions_too_early() -> None:
    """A group continues at the begin of the target's log, and what it reads again is stated as if it did not."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def bounded(placed: Any, tp: Any, snapshot: Any, **more: Any) -> Any:
            begin = snapshot.partitions[tp].target_start
            return replace(plain(placed, tp, snapshot, **more), target_offset=begin)

        return bounded

    patch("drkit.failover.positions.positions:bounded", make)


def tail_copied_again() -> None:
    """A mirror that starts continues at its last watermark on the source, behind all that is on the target."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        def resume_point(rows: Any, watermark: Any, log_end: int, **ends: Any) -> Any:
            found = plain(rows, watermark, log_end, **ends)
            if watermark is None:
                return found
            return replace(found, source_offset=watermark.source_through, last_row=None)

        return resume_point

    patch("drkit.mirror.resume.partition_resume:resume_point", make)


def halted_for_good() -> None:
    """A partition that was halted once, as by a broker of the target that is gone, is never started again."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        started: set[Any] = set()

        def resume(resumer: Any, wanted: dict[Any, Any], *others: Any) -> list[Any]:
            link = resumer._link  # two links may have a topic of one name
            fresh = {tp: ready for tp, ready in wanted.items() if (link, tp) not in started}
            resumed: list[Any] = plain(resumer, fresh, *others) if fresh else []
            started.update((link, each.start.tp) for each in resumed)
            return resumed

        return resume

    patch("drkit.mirror.resume.partition_resume:Resumer.resume", make)


def store_asked_until_it_is_lost() -> None:
    """A store that did not answer once is never asked again."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        from drkit.model.errors import Unreachable  # noqa: PLC0415 - as above

        lost: list[Unreachable] = []

        @contextmanager
        def answered(session: Any, deed: str) -> Iterator[None]:
            if lost:
                raise lost[0]
            try:
                with plain(session, deed):
                    yield
            except Unreachable as error:
                lost.append(error)
                raise

        return answered

    patch("drkit.store.cassandra.session:CassandraSession.answered", make)


def idle_taken_for_ended() -> None:
    """What a partition gets after 10 s without a record is not read any more."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        read_at: dict[tuple[str, int], float] = {}

        def sort(fetcher: Any, answers: Any) -> Any:
            now, found = time.monotonic(), []
            for each in answers:
                key = (each.topic, each.partition)
                if each.records and now - read_at.get(key, now) > _IDLE_SECONDS:
                    continue
                if each.records:
                    read_at[key] = now
                found.append(each)
            return plain(fetcher, found)

        return sort

    patch("drkit.mirror.engine.fetcher:Fetcher._sort", make)


def source_connected_once() -> None:
    """A connection to the source that has ended is never made again."""

    def make(plain: Callable[..., Any]) -> Callable[..., Any]:
        first: dict[tuple[int, str], Any] = {}

        async def connection(client: Any, node: int, purpose: str) -> Any:
            if client.alias != "primary":
                return await plain(client, node, purpose)
            known = first.get((node, purpose))
            if known is None:
                known = first[node, purpose] = await plain(client, node, purpose)
            return known if known is not None and known.open else None

        return connection

    patch("drkit.kafka.client.data_client:DataClient.connection", make)


_VERBS = {
    "fence_believed": {"failover"},
    "ends_for_positions": {"failover"},
    "loss_understated": {"failover"},
    "time_believed": {"failover"},
    "positions_too_early": {"failover"},
    "caught_up_believed": {"reprotect"},
    "range_left_out": {"failback", "resume"},
    "interruption_taken_for_done": {"resume"},
    "other_links_left_alone": {"resume"},
}
"""The commands with a defect, except for the mirror."""
PLANTS: dict[str, Callable[[], None]] = ADVERSARYS | {
    each.__name__: each
    for each in (
        seal_not_heeded,
        seal_of_both_directions,
        deletions_followed,
        gaps_not_told,
        fence_believed,
        checksums_not_compared,
        caught_up_believed,
        range_left_out,
        silence_not_ended,
        interruption_taken_for_done,
        other_links_left_alone,
        aborts_forwarded,
        ends_for_positions,
        loss_understated,
        time_believed,
        positions_too_early,
        tail_copied_again,
        halted_for_good,
        source_connected_once,
        store_asked_until_it_is_lost,
        idle_taken_for_ended,
    )
}


def put(name: str) -> None:
    """Patch a defect into this process."""
    PLANTS[name]()


def planted(folder: Path, name: str) -> dict[str, str]:
    """The environment in which a drill's commands have the defect of this name."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_CUSTOM.format(name=name, verbs=_VERBS.get(name, {"mirror"})))
    return {"PYTHONPATH": os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH")) if part)}
