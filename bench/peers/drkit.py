"""drkit as its users run it: `drkit mirror` with a drkit.toml of its own and the embedded store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.base import Job, Running, launched
from bench.processes import CONFIG, drkit

STORE = "drkit.db"

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


def render(job: Job, buffer_bytes: int | None = None, lines: Sequence[str] = ()) -> str:
    """The drkit.toml of a job: defaults, except for the link's buffer where it is given; `lines`: more keys."""
    buffer = "" if buffer_bytes is None else f"buffer_bytes = {buffer_bytes}\n"
    plain = _TEMPLATE.format(
        source=job.source.alias,
        target=job.target.alias,
        source_address=job.source.address,
        target_address=job.target.address,
        store=STORE,
        topics=job.topics,
    )
    return plain + buffer + "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class Drkit:
    """`drkit mirror`. `buffer_bytes`: the link's, where it isn't the default; `processes`: how many share it;
    `lines`: further keys of the link.
    """

    name: str = "drkit"
    title: str = "drkit"
    buffer_bytes: int | None = None
    processes: int = 1
    lines: tuple[str, ...] = ()

    def launch(self, job: Job) -> Running:
        """Start `drkit mirror`; it runs until stopped."""
        (job.folder / CONFIG).write_text(render(job, self.buffer_bytes, self.lines), encoding="utf-8")
        command = drkit(job.folder, "mirror", *(("--processes", str(self.processes)) if self.processes > 1 else ()))
        return launched(command, job.folder / "mirror.log", cwd=job.folder)

    def check(self, job: Job, running: Running) -> None:
        """Nothing was tuned: it runs with its defaults."""
