"""Compile the kernel and keep it, in a process of its own: `python -m drkit.kafka.compiled.build FILE [again]`.

One at a time, whoever asks; what comes out is tried before it is kept, for what is wrong with it should end this
process and no other. Where memory is short, it is this process that goes. One that was killed leaves a mark, so that a
mirror that was killed along with it doesn't go round in circles; `again` looks over it.
"""

from __future__ import annotations

import fcntl
import sys
from pathlib import Path

from drkit.kafka.batch import header
from drkit.kafka.compiled.kept import Code, keep, kept
from drkit.kafka.compiled.native import Kernel
from drkit.kafka.joined import joined_natively, joined_plainly
from drkit.kafka.records import Record, build

_OOM = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO = "1000"


def main(path: Path, *, again: bool) -> None:
    """See the module docstring."""
    if _OOM.exists():
        _OOM.write_text(_FIRST_TO_GO)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    tried = path.with_suffix(".tried")
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if kept(path) is not None:
            return
        if tried.exists() and not again:
            sys.exit("an earlier attempt to compile it was killed; `python -m drkit.kafka.compiled` tries again")
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
    records = [
        Record(number, 1_000 + 7 * number, b"\x01" + bytes([number % 256]) * (number % 90)) for number in range(99)
    ]
    data = b"".join(_alone(record) for record in records)
    plain, whole = build(records[:1], 0).payload, build([records[0], records[0]], 0).payload
    if joined_natively(kernel, data, 0) != joined_plainly(data, 0) or kernel.merge([(plain, 1, 0)] * 2) != (whole, 0):
        raise RuntimeError("what was compiled doesn't do what it should")


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
