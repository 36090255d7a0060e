"""A mirror leaves a sealed link whatever its source does: who fails over waits for it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from drkit.mirror.groups import transaction_watch
from drkit.mirror.runtime import session
from drkit.model.clock import now
from drkit.model.errors import Refused
from drkit.model.link_state import Direction, LinkControl
from drkit.model.topology import TopicPartition
from drkit.store.workers import read_workers
from tests.support.links.mirroring import Mirrored
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

_ENDLESS = 3_600.0
"""A call to the source that isn't ended from outside lasts as long."""


def test_calls_to_a_source_that_is_frozen_hold_nobody_up(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (session, transaction_watch):
        monkeypatch.setattr(module, "_ADMIN_SECONDS", _ENDLESS)
    monkeypatch.setattr(session, "_JOIN_SECONDS", _ENDLESS)
    topic = mirrored.name("orders")
    mirrored.source.create(topic)
    producer = mirrored.source.producer()
    for number in range(10):
        producer.produce(topic, value=b"%d" % number, partition=0)
    assert producer.flush(20) == 0
    link = mirrored.link.id

    def hangs() -> bool:
        """It looks at the source every second, and has not come back from a look for longer."""
        mark = mirrored.store.watermarks(link)[TopicPartition(topic, 0)]
        return now() - mark.observed_at > timedelta(seconds=4)

    with mirrored.running() as running:
        mirrored.wait_through(topic)
        mirrored.lab.pause("primary")
        try:
            wait_until(hangs, what="calls that hang")
            sealed = LinkControl(link, Direction.SEALED, 1, now(), "test", "01J-A-RUN")
            assert mirrored.store.set_link_control(sealed, expected_version=None)
            with pytest.raises(Refused, match="01J-A-RUN"):
                running.result()
        finally:
            mirrored.lab.resume("primary")
    assert read_workers(mirrored.store, link) == []
    assert mirrored.store.lease(f"mirror:{link}") is None
