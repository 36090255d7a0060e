"""Describes the machine and the versions of a run, without the machine's name."""

from __future__ import annotations

import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from bench.processes import cores
from drkit.lab.toolchain import Toolchain


def describe(toolchain: Toolchain) -> dict[str, str | int | float]:
    """Cores, memory, kernel, versions, the time now."""
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / (1 << 30), 1),
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "java": _java(toolchain),
        "kafka": _kafka(toolchain),
        "cassandra": _jar_version(toolchain, "cassandra", "cassandra-all"),
        "drkit": version("drkit"),
        "aiokafka": version("aiokafka"),
        "confluent_kafka": version("confluent-kafka"),
        "load_before": round(psutil.getloadavg()[0], 2),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java(toolchain: Toolchain) -> str:
    said = subprocess.run([str(toolchain.java), "-version"], capture_output=True, text=True, check=True).stderr
    found = re.search(r'"([^"]+)"', said)
    return found[1] if found else said.splitlines()[0]


def _kafka(toolchain: Toolchain) -> str:
    return _jar_version(toolchain, "kafka", "kafka_2.13")


def _jar_version(toolchain: Toolchain, name: str, artifact: str) -> str:
    jar = next(path for path in toolchain.jars(name) if path.name.startswith(f"{artifact}-"))
    return jar.stem.removeprefix(f"{artifact}-")
