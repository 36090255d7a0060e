"""The bare forwarder of `bench.bare_forwarder`: no mirror, but what any mirror in Python is measured against."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench.peers.base import Job, Running, launched
from bench.processes import ROOT

BARE = "bare"


@dataclass(frozen=True, slots=True)
class Bare:
    """Forwards one topic of so many partitions, from what is new on it."""

    partitions: int
    name: str = BARE
    title: str = "a bare forwarder"

    def launch(self, job: Job) -> Running:
        """Make the topic on the target, then start."""
        job.target.create_topic(job.topics, self.partitions)
        command = [sys.executable, "-m", "bench.bare_forwarder", job.source.address, job.target.address, job.topics]
        return launched([*command, str(self.partitions)], job.folder / "forwarder.log", cwd=ROOT)

    def check(self, job: Job, running: Running) -> None:
        """Nothing can be tuned."""
