"""Which function injects which fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import TAKES_DATA, Fault
from drkit.drill.faults.client_faults import correct_clock, expire_credentials, renew_credentials, skew_clock
from drkit.drill.faults.network_faults import degrade_network, heal_network, partition_network, reset_network
from drkit.drill.faults.process_faults import disconnect, fill_disk, kill, pause, restart, resume
from drkit.drill.faults.topic_faults import (
    add_partitions,
    corrupt_batch,
    delete_topic,
    flood,
    lose_tail,
    purge_topic,
    recreate_topic,
    write_foreign,
)
from drkit.model.errors import DrkitError

FAULTS: Final[dict[str, Callable[[DrillEnvironment, Any], str]]] = {
    function.__name__: function
    for function in (
        kill,
        pause,
        resume,
        restart,
        fill_disk,
        disconnect,
        delete_topic,
        recreate_topic,
        add_partitions,
        purge_topic,
        write_foreign,
        lose_tail,
        corrupt_batch,
        flood,
        expire_credentials,
        renew_credentials,
        skew_clock,
        correct_clock,
        degrade_network,
        partition_network,
        reset_network,
        heal_network,
    )
}
"""By the word that an experiment's file has for it."""


def inject(env: DrillEnvironment, fault: Fault) -> str:
    """Inject a fault; returns what was done, in words.

    Raises:
        DrkitError: it can't be made here, or not now: it did not strike.
    """
    if isinstance(fault, TAKES_DATA):
        env.took_data_from.add(fault.cluster)  # before: one that fails halfway may have taken some
    try:
        return FAULTS[fault.do](env, fault)
    except KafkaException as error:
        raise DrkitError(f"the cluster did not take it: {error}", remedy="Look at the steps before this one") from error
