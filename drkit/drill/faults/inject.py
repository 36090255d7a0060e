"""Maps faults to the functions that inject them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import KafkaException

from drkit.drill.environment.environment import DrillEnvironment
from drkit.drill.experiment.faults import TAKES_DATA, Fault
from drkit.drill.faults.applications.correct_clock import correct_clock
from drkit.drill.faults.applications.expire_certificate import expire_certificate
from drkit.drill.faults.applications.expire_credentials import expire_credentials
from drkit.drill.faults.applications.renew_certificate import renew_certificate
from drkit.drill.faults.applications.renew_credentials import renew_credentials
from drkit.drill.faults.applications.skew_clock import skew_clock
from drkit.drill.faults.network.degrade_network import degrade_network
from drkit.drill.faults.network.heal_network import heal_network
from drkit.drill.faults.network.partition_network import partition_network
from drkit.drill.faults.network.reset_network import reset_network
from drkit.drill.faults.nodes.disconnect import disconnect
from drkit.drill.faults.nodes.fill_disk import fill_disk
from drkit.drill.faults.nodes.kill import kill
from drkit.drill.faults.nodes.pause import pause
from drkit.drill.faults.nodes.restart import restart
from drkit.drill.faults.nodes.resume import resume
from drkit.drill.faults.topics.add_partitions import add_partitions
from drkit.drill.faults.topics.corrupt_batch import corrupt_batch
from drkit.drill.faults.topics.delete_topic import delete_topic
from drkit.drill.faults.topics.flood import flood
from drkit.drill.faults.topics.lose_tail import lose_tail
from drkit.drill.faults.topics.purge_topic import purge_topic
from drkit.drill.faults.topics.recreate_topic import recreate_topic
from drkit.drill.faults.topics.write_foreign import write_foreign
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
        expire_certificate,
        renew_certificate,
        skew_clock,
        correct_clock,
        degrade_network,
        partition_network,
        reset_network,
        heal_network,
    )
}
"""By the fault's name in experiment files."""


def inject(env: DrillEnvironment, fault: Fault) -> str:
    """Inject a fault; returns a description of it.

    Raises:
        DrkitError: it can't be injected here, or not now: it had no effect.
    """
    if isinstance(fault, TAKES_DATA):
        env.took_data_from.add(fault.cluster)  # before: a fault that fails halfway may have removed some
    try:
        return FAULTS[fault.do](env, fault)
    except KafkaException as error:
        raise DrkitError(f"the cluster did not accept it: {error}", remedy="Check the steps before this one") from error
