"""A partition moves between two fetchers of one broker without a doubt whether that was restarted in between."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from drkit.mirror.engine import fetcher
from drkit.mirror.engine.fetcher import Fetcher, Read
from drkit.mirror.engine.interface import Incident
from drkit.mirror.engine.leader_routing import LeaderRouting
from drkit.mirror.engine.pacing.catch_up_rate import CatchUpRate
from drkit.model.topology import CatchUpPolicy
from tests.unit.mirror.engine.test_batch_reader import Broker, Source, engine_state, settle, started


class OneBroker(Source):
    """A source whose only broker leads every partition, or a target that nobody leads."""

    def __init__(self, *brokers: Broker) -> None:
        super().__init__(*brokers)
        self.leads = 1 if brokers else None

    def leader(self, *_: object) -> int | None:
        return self.leads

    def take_changed(self) -> set[str]:
        return set()


@pytest.mark.parametrize("held", [False, True], ids=["read", "paused"])
def test_a_partition_moves_to_a_new_connection_once_the_broker_has_answered_on_the_old_one_since(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker without room asks nothing for seconds; that the broker was silent meanwhile shows nothing."""
    live, backlog, clock = Broker(), Broker(), SimpleNamespace(at=50.0)
    monkeypatch.setattr(fetcher, "time", SimpleNamespace(monotonic=lambda: clock.at, thread_time=lambda: 0.0))
    told, admitted, rate = list[Incident](), list[Read](), CatchUpRate(CatchUpPolicy(), lambda: clock.at)

    async def work() -> None:
        flow = engine_state(OneBroker(live, backlog), OneBroker(), told, rate)
        routing = LeaderRouting(flow, admitted.extend, rack="")
        partition = started(100)
        flow.partitions[partition.tp] = partition
        routing.add(partition)
        routing.tick()
        await settle()
        live.answer(100, 10, more=1_000)
        await settle()
        clock.at += 2  # the next answer isn't there yet
        partition.hold(held)
        rate.bound(10_000_000)
        routing.tick()
        await settle()
        routing.tick()
        assert reads(partition.reader) is held, "nothing is read of a paused one, so it moves at once"
        if held:
            partition.hold(False)
            await settle()
        else:
            live.answer(110, 10, more=990)
            await settle()
            routing.tick()
            assert reads(partition.reader)
            await settle()
            backlog.answer(120, 10, more=980)
            await settle()
        routing.close()

    asyncio.run(work())
    assert [read.begin for read in admitted] == ([100] if held else [100, 110, 120])
    assert len(told) == held, "it may have been restarted while nobody asked"


def reads(reader: object) -> bool:
    return isinstance(reader, Fetcher) and reader.backlog
