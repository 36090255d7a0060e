"""What Kafka's format command writes into an empty log directory, made once per release and kept.

The checkpoint sets the release's feature levels; it names neither cluster nor node. Running the
command for every broker would cost a JVM start each, a good part of the lab's start time.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from drkit.lab.interrupts import Interrupts
from drkit.lab.kafka_node import cluster_uuid, properties
from drkit.lab.layout import Node
from drkit.lab.toolchain import Toolchain
from drkit.lab.toolchain.cache import write_atomically
from drkit.model.errors import DrkitError

_POLL_SECONDS = 0.1


def formatted_bootstrap(toolchain: Toolchain, interrupts: Interrupts, jar_set: str = "kafka") -> bytes:
    """The bootstrap checkpoint of the Kafka in a set of the toolchain's jars.

    Raises:
        DrkitError: the format command failed; its output is in the message.
    """
    release = hashlib.sha256("".join(jar.sha256 for jar in toolchain.sets[jar_set]).encode()).hexdigest()[:16]
    kept = toolchain.cache / "kafka-format" / release / "bootstrap.checkpoint"
    if not kept.is_file():
        write_atomically(kept, _format(toolchain, interrupts, jar_set))
    return kept.read_bytes()


def _format(toolchain: Toolchain, interrupts: Interrupts, jar_set: str) -> bytes:
    work = Path(tempfile.mkdtemp(prefix="drkit-format-"))
    try:
        node = Node("any", "kafka", "any", 1, 1, 2)
        file = work / "server.properties"
        settings = properties(node, [node], work / "data", {})
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        command = [str(toolchain.java), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m"]
        command += ["-cp", toolchain.classpath(jar_set), "kafka.tools.StorageTool", "format"]
        command += ["-t", cluster_uuid(), "-c", str(file)]
        with (work / "output").open("wb") as output:
            tool = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        try:
            while tool.poll() is None:
                interrupts.wait(_POLL_SECONDS)
        finally:
            if tool.poll() is None:
                tool.kill()
            tool.wait()
        written = work / "data" / "bootstrap.checkpoint"
        if tool.returncode != 0 or not written.is_file():
            raise DrkitError(
                "Kafka's format command failed",
                meaning=(work / "output").read_text(encoding="utf-8", errors="replace")[-2000:],
            )
        return written.read_bytes()
    finally:
        shutil.rmtree(work, ignore_errors=True)
