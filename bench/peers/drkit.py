"""drkit as its users run it: `drkit mirror` with a drkit.toml of its own and the embedded store."""

from __future__ import annotations

import sys

from bench.peers.base import Job, Running, launched

STORE = "drkit.db"
CONFIG = "drkit.toml"

_TEMPLATE = """[clusters.{source}]
bootstrap_servers = "{source_address}"

[clusters.{target}]
bootstrap_servers = "{target_address}"

[store]
url = "sqlite:///{store}"

[[links]]
source = "{source}"
target = "{target}"
topics = ['{topics}']
"""


def render(job: Job) -> str:
    """The drkit.toml of a job: defaults everywhere."""
    return _TEMPLATE.format(
        source=job.source.alias,
        target=job.target.alias,
        source_address=job.source.address,
        target_address=job.target.address,
        store=STORE,
        topics=job.topics,
    )


class Drkit:
    """`drkit mirror`."""

    name = "drkit"
    title = "drkit"

    def launch(self, job: Job) -> Running:
        """Start `drkit mirror`; it runs until stopped."""
        config = job.folder / CONFIG
        config.write_text(render(job), encoding="utf-8")
        command = [sys.executable, "-m", "drkit", "mirror", "--config", str(config)]
        return launched(command, job.folder / "mirror.log", cwd=job.folder)

    def check(self, job: Job, running: Running) -> None:
        """Nothing was tuned: it runs with its defaults."""
