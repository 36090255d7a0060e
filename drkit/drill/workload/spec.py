"""The input of a client process: a JSON file, so that no password is on a command line."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """One client. `properties` are librdkafka's; `ledger` is the path of its SQLite file.

    `rate`: records per second over all partitions; `next_seqs`: the next number of each key; `offset_reset`: where a
    group without a position starts, `earliest` or `latest`; `key_prefix`: of a producer's keys; `clock_skew_seconds`:
    how far ahead its clock is; `late_every`, `late_seconds`: each so many-th record has a timestamp so many seconds
    earlier (0: none); `transactional_id`: of a producer that writes in transactions of `transaction_records`,
    each `abort_every`-th of which it aborts (0: none); `parent`: the process that started it, whose end also ends the
    client.
    """

    drill: str
    ledger: str
    properties: dict[str, str]
    topic: str
    partitions: int
    group: str
    keys: int
    rate: float
    value_bytes: int
    commit_every_seconds: float
    flush_seconds: float
    parent: int
    next_seqs: dict[str, int]
    offset_reset: str
    key_prefix: str
    clock_skew_seconds: float = 0.0
    late_every: int = 0
    late_seconds: float = 0.0
    transactional_id: str | None = None
    transaction_records: int = 0
    abort_every: int = 0

    def write(self, path: Path) -> None:
        """Write it to a file that only its owner can read."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(self), file)

    @classmethod
    def take(cls, path: Path) -> ClientSpec:
        """Read and remove the file that `write` wrote: it may hold a password."""
        text = path.read_text()
        path.unlink()
        return cls(**json.loads(text))

    def orphaned(self) -> bool:
        """Whether the drill that started this client is gone."""
        return os.getppid() != self.parent


class Stop:
    """Set by SIGTERM or SIGINT: the client finishes what is in flight, writes it, and ends."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)
        signal.signal(signal.SIGINT, self._ask)

    def asked(self) -> bool:
        """Whether to end."""
        return self._asked

    def _ask(self, _signal: int, _frame: FrameType | None) -> None:
        self._asked = True
