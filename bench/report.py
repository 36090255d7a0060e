"""RESULTS.md: what was measured, on what, in one file."""

from __future__ import annotations

from bench.results import Results
from bench.table import grids, markdown

_INTRODUCTION = (
    "Written by `python -m bench`; what each figure means, and what it doesn't, is in [README.md](README.md). "
    "What an audit costs is in [AUDIT.md](AUDIT.md). "
    "★: a case that a target is about.\n"
)
_SHARED = "Both brokers, the mirror, the loader and the readers share these cores.\n"
_LABELS = {
    "at": "begun",
    "cpu": "CPU",
    "cores": "cores",
    "memory_gib": "memory, GiB",
    "kernel": "kernel",
    "python": "Python",
    "java": "Java",
    "kafka": "Kafka and MirrorMaker 2",
    "cassandra": "Cassandra",
    "drkit": "drkit",
    "aiokafka": "aiokafka",
    "confluent_kafka": "confluent-kafka",
    "load_before": "load average before",
}


def render(results: Results) -> str:
    """The file's text."""
    machine = "\n".join(
        f"| {_LABELS.get(name, name)} | {value} |" for name, value in results.machine.items() if value is not None
    )
    parts = [
        f"# drkit and MirrorMaker 2, side by side: a {results.extent} run\n",
        _INTRODUCTION,
        f"## The machine\n\n| | |\n| --- | --- |\n{machine}\n\n{_SHARED}",
        *(markdown(grid) for grid in grids(results)),
    ]
    if results.failures:
        parts.append("## Not measured\n\n" + "\n".join(f"- {_one_line(each)}" for each in results.failures) + "\n")
    return "\n".join(parts)


def _one_line(text: str) -> str:
    return text.strip().splitlines()[0]
