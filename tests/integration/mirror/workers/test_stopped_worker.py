"""A worker that is stopped within a look at the topics, and wakes up after the failover's switch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from drkit.config import ClusterConfig
from drkit.kafka.admin.cluster_admin import ClusterAdmin
from drkit.model.clock import now
from drkit.model.link_state import Direction, LinkControl
from drkit.store.workers import live_workers
from tests.support.links.mirroring import Mirrored, Side
from tests.support.wait import wait_until

pytestmark = pytest.mark.lab

SETTING = "max.message.bytes"


def setting(side: Side, topic: str, value: str | None = None) -> str:
    """A setting of a topic; set first where a value is given."""
    with ClusterAdmin("side", ClusterConfig(bootstrap_servers=side.bootstrap)) as admin:
        if value is not None:
            admin.set_topic_configs(topic, {SETTING: value})
        return admin.topic_configs([topic])[topic][SETTING]


def test_a_worker_that_wakes_up_after_the_switch_changes_nothing(mirrored: Mirrored, tmp_path: Path) -> None:
    topic, told = mirrored.name("settings"), tmp_path / "stop"
    mirrored.source.create(topic, max_message_bytes="1500000")
    command = [sys.executable, "-m", "tests.support.killing.stopping_worker", str(mirrored.config_path)]
    with subprocess.Popen([*command, "set_many_topic_configs", str(told)], stderr=subprocess.PIPE, text=True) as child:
        try:
            mirrored.wait_through(topic)
            told.touch()
            setting(mirrored.source, topic, "1600000")
            stopped = psutil.Process(child.pid)
            wait_until(lambda: stopped.status() == psutil.STATUS_STOPPED, what="the worker to stop itself")
            control = LinkControl(mirrored.link.id, Direction.SEALED, 1, now(), "failed over", "run")
            assert mirrored.store.set_link_control(control, expected_version=None)
            link = mirrored.link.id  # a failover continues once no worker's note holds any longer
            wait_until(lambda: not live_workers(mirrored.store, link, now()), what="the worker's note to run out")
            child.send_signal(signal.SIGCONT)
            _, said = child.communicate(timeout=60)
        finally:
            child.kill()
    assert setting(mirrored.target, topic) == "1500000"
    assert child.returncode != 0
    assert "is sealed by run run" in said
