"""A target that doesn't let drkit produce: refused with the right that lacks, before anything is mirrored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin.logs.producers import ProducerStateAdmin
from drkit.lab import Lab
from drkit.model.errors import Refused
from tests.support.clusters.guard import Guard

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, lab_guard: Guard) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("guarded")
    lab_guard.watch(folder)
    lab = Lab.up(folder, brokers=1, store="sqlite", clusters=("a",), users={"mirror": "word"})
    yield lab
    lab.down()


def test_no_right_to_produce_idempotently(guarded: Lab) -> None:
    target = ClusterConfig.model_validate(
        {
            "bootstrap_servers": guarded.bootstrap("a", sasl=True),
            "client": {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": "mirror",
                "sasl.password": "word",
            },
        }
    )
    producers = ProducerStateAdmin("a", target)
    try:
        with pytest.raises(Refused, match="get a producer id") as raised:
            producers.new_producer_id()
        assert "IDEMPOTENT_WRITE" in raised.value.remedy
    finally:
        producers.close()
