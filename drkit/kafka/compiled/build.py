"""Compile the kernel and keep it, in a process of its own: `python -m drkit.kafka.compiled.build FILE [again]`.

One at a time, whoever asks; what comes out is tried before it is kept, for what is wrong with it should end this
process and no other. Where memory is short, it is this process that goes. One that was killed leaves a mark, so that a
mirror that was killed along with it doesn't go round in circles; it holds for an hour, and `again` looks over it.
"""

from __future__ import annotations

import fcntl
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from drkit.kafka.batch import header
from drkit.kafka.compiled.kept import Code, check_own, keep, kept
from drkit.kafka.compiled.native import Kernel
from drkit.kafka.joined import joined_natively, joined_plainly
from drkit.kafka.records import Record, build

_OOM = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO = "1000"
_TRIED_SECONDS = 3_600
_TRIED_WITH = 99


def main(path: Path, *, again: bool) -> None:
    """See the module docstring."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("it was told to end"))
    with suppress(OSError):  # no such file, or one that may not be written: it isn't the first to go then
        _OOM.write_text(_FIRST_TO_GO)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_own(path.parent)
    tried = path.with_suffix(".tried")
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept(path) is not None:
            return
        if not again and tried.exists() and time.time() - tried.stat().st_mtime < _TRIED_SECONDS:
            sys.exit("an attempt was killed less than an hour ago; `python -m drkit.kafka.compiled` tries again")
        tried.touch()
        try:
            code = _compiled()
            _try(code)
            keep(path, code)
        finally:
            tried.unlink()


def _compiled() -> Code:
    from drkit.kafka.compiled.codegen import built  # noqa: PLC0415 - 150 MiB, not before it is sure that they are needed

    return built()


def _try(code: Code) -> None:
    """Have it join and merge some records; raises RuntimeError where plain Python does that differently."""
    kernel = Kernel(code)
    bodies = [b"\x01" + bytes([number]) * (3 + number) for number in range(_TRIED_WITH)]
    records = [Record(number, 1_000 + 7 * number, body) for number, body in enumerate(bodies)]
    data = b"".join(_alone(record) for record in records)
    joined, after = joined_plainly(data, 0)
    parts = [(build([record], 0).payload, 1, record.timestamp - 1_000) for record in records]
    whole = build(records, 0)
    right = joined is not None and joined.batches == _TRIED_WITH and after == len(data)
    if not right or joined_natively(kernel, data, 0) != (joined, after):
        raise RuntimeError("what was compiled doesn't join batches as it should")
    if kernel.merge(parts) != (whole.payload, whole.max_timestamp - whole.base_timestamp):
        raise RuntimeError("what was compiled doesn't merge records as it should")


def _alone(record: Record) -> bytes:
    """A batch of one record, as it lies in a log."""
    built = build([record], 0)
    head = header(
        attributes=0,
        count=1,
        base_timestamp=built.base_timestamp,
        max_timestamp=built.max_timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        records=built.payload,
    )
    return record.offset.to_bytes(8) + head[8:] + built.payload


if __name__ == "__main__":
    main(Path(sys.argv[1]), again=sys.argv[2:] == ["again"])
