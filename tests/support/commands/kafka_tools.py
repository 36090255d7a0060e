"""Carries out commands of Kafka's own tools that drkit tells an operator to run."""

from __future__ import annotations

import shlex
import subprocess

from drkit.lab.toolchain import ensure


def consumer_groups(command: str) -> None:
    """Carry out a command of kafka-consumer-groups.sh, by the class behind it."""
    name, *words = shlex.split(command)
    assert name == "kafka-consumer-groups.sh"
    tools = ensure("mirrormaker")
    tool = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    java = [str(tools.java), "-cp", tools.classpath("mirrormaker"), tool]
    subprocess.run([*java, *words], check=True, capture_output=True, timeout=60)
