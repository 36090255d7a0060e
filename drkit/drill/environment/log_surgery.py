"""Truncates a partition's log on the disk of a stopped broker: a power cut, a lost page cache.

The broker restarts with a log that ends below its acknowledged offsets. With one replica that is the result of an
unclean election: a newer leader epoch begins at the cut.

    with stopped(lab, "primary-1") as disk:
        end = disk.cut(topic, 0, 940)       # in-between the broker is down
    ...                                     # it answers again, and its log ends at `end`
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crc32c import crc32c

from drkit.drill.environment.waiting import wait_for
from drkit.kafka.protocol.record_batch import CODEC_MASK, CRC_FROM, Batch, parse
from drkit.lab import Lab
from drkit.lab.process import gone, send
from drkit.model.errors import DrkitError, Refused

_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")
_EPOCHS = "leader-epoch-checkpoint"
_STARTS = "log-start-offset-checkpoint"
_OF_A_SEGMENT = (".index", ".timeindex", ".txnindex", ".snapshot")
_STOP_SECONDS = 180.0
"""A controlled shutdown flushes every partition's log: a broker of many takes a minute on a slow disk."""
_START_SECONDS = 300.0
"""After a kill each log's last segment is read again."""
_CRC_BYTES = 4
_CODEC_AT = CRC_FROM + 1
"""The byte of a batch that holds its codec: the lower one of its attributes."""


class Disk:
    """The log directory of a stopped broker."""

    def __init__(self, data: Path) -> None:
        self.data = data

    def partition(self, topic: str, partition: int) -> Path:
        """The folder of a partition's log."""
        return self.data / f"{topic}-{partition}"

    def cut(self, topic: str, partition: int, offset: int) -> int:
        """Remove all batches that reach `offset` or beyond; returns the new log end (at most `offset`)."""
        folder = self.partition(topic, partition)
        segments = sorted(folder.glob("*.log"))
        if not segments:
            raise Refused(f"there is no log of {topic}:{partition} in {self.data}")
        kept = [each for each in segments if int(each.stem) < offset] or segments[:1]
        for segment in segments:
            if segment not in kept:
                segment.unlink()
        end = _cut_segment(kept[-1], offset)
        for path in folder.iterdir():
            above = path.suffix in _OF_A_SEGMENT and int(path.stem) > end
            if above or (path.suffix in _OF_A_SEGMENT and path.stem == kept[-1].stem and path.suffix != ".snapshot"):
                path.unlink()  # the broker builds the index of the last segment again
        _rewrite(folder / _EPOCHS, lambda line: int(line[-1]) < end)
        for name in _CHECKPOINTS:
            _lower(self.data / name, topic, partition, end)
        return end

    def append(self, topic: str, partition: int, batch: bytes, leader_epoch: int) -> int:
        """Append a batch with the log's newest leader epoch; returns the new log end."""
        segment = max(self.partition(topic, partition).glob("*.log"))
        held = list(parse(memoryview(segment.read_bytes())))
        end = held[-1].last_offset + 1 if held else int(segment.stem)
        with segment.open("ab") as file:
            file.write(end.to_bytes(8, "big") + batch[8:12] + leader_epoch.to_bytes(4, "big") + batch[16:])
        return max(each.last_offset for each in self.batches(topic, partition)) + 1

    def forget_start(self, topic: str, partition: int) -> None:
        """Let the log begin with its first batch again: the checkpoint stores DeleteRecords only once a minute."""
        _rewrite(self.data / _STARTS, lambda line: (line[0], int(line[1])) != (topic, partition))

    def copy_to(self, folder: Path) -> None:
        """Copy all of it, the controller's log too, to a new folder; without the logs of deleted topics, whose index
        files have their full size."""
        shutil.copytree(self.data, folder, ignore=shutil.ignore_patterns("*-delete"))

    def set_back(self, folder: Path) -> None:
        """Replace all of it with such a copy."""
        shutil.rmtree(self.data)
        shutil.copytree(folder, self.data)

    def batches(self, topic: str, partition: int) -> list[Batch]:
        """The log's batches, oldest first."""
        return [
            batch
            for path in sorted(self.partition(topic, partition).glob("*.log"))
            for batch in parse(memoryview(path.read_bytes()))
        ]


@contextmanager
def stopped(lab: Lab, name: str, *, cleanly: bool = True) -> Iterator[Disk]:
    """The disk of a broker that is down during the body, then started: it answers when this returns.

    `cleanly`: a controlled shutdown (the lab starts it again at once); else it is killed, and its next start waits for
    the end of its session at the controller.

    Raises:
        Refused: it doesn't run.
        NotInTime: it hasn't ended by itself in time; it is started again.
    """
    running = lab.running(name).get(name)
    if running is None:
        raise Refused(f"{name} does not run, so it can't be stopped")
    try:
        if cleanly:
            send(running, signal.SIGTERM)
            wait_for(f"the end of {name}", _STOP_SECONDS, lambda: gone(running))
        else:
            lab.kill(name)
        yield Disk(lab.dir / "nodes" / name / "data")
    finally:
        lab.restart(name, timeout_seconds=_START_SECONDS)


def _cut_segment(segment: Path, offset: int) -> int:
    """Cut a segment before the first batch that reaches `offset`; returns its end."""
    end, size = int(segment.stem), 0
    for batch in parse(memoryview(segment.read_bytes())):
        if batch.last_offset >= offset:
            break
        end = batch.last_offset + 1
        size += len(batch.whole)
    os.truncate(segment, size)
    return end


def _rewrite(path: Path, keep: Callable[[list[str]], bool]) -> None:
    """Keep some lines of a checkpoint: a version, the number of lines, the lines."""
    if not path.exists() or not path.stat().st_size:
        return
    version, _, *lines = path.read_text().splitlines()
    kept = [line for line in lines if keep(line.split())]
    path.write_text("\n".join([version, str(len(kept)), *kept, ""]))


def _lower(path: Path, topic: str, partition: int, end: int) -> None:
    """Lower a partition's offset in a checkpoint to at most `end`."""
    if not path.exists() or not path.stat().st_size:
        return
    version, count, *lines = path.read_text().splitlines()
    lowered = []
    for line in lines:
        name, number, offset = line.split()
        mine = (name, int(number)) == (topic, partition)
        lowered.append(f"{name} {number} {min(end, int(offset))}" if mine else line)
    path.write_text("\n".join([version, count, *lowered, ""]))


def flip(folder: Path, offset: int, at: int, mask: int = 0xFF) -> Batch:
    """Flip bits of the stored batch that holds an offset, without the broker's knowledge, as a bad disk does.

    Args:
        folder: of the partition's log; its broker may run (it reads through the same page cache).
        offset: of a record in the batch.
        at: which byte of the batch (laid out in `drkit.kafka.protocol.record_batch`); negative: from its end.
        mask: the bits to flip.

    Returns:
        the batch as it was.
    """
    segment, begin, batch = _stored(folder, offset)
    with segment.open("r+b") as file:
        file.seek(begin + at % len(batch.whole))
        byte = file.read(1)[0]
        file.seek(begin + at % len(batch.whole))
        file.write(bytes([byte ^ mask]))
    return batch


def recode(folder: Path, offset: int, codec: int) -> Batch:
    """Set another codec in the stored batch that holds an offset, with a matching checksum.

    Args:
        folder: as for `flip`.
        offset: as for `flip`.
        codec: 0 to 7; 5 and above aren't Kafka codecs.

    Returns:
        the batch as it was.
    """

    def recoded(data: bytes) -> bytes:
        whole = bytearray(data)
        whole[_CODEC_AT] = whole[_CODEC_AT] & ~CODEC_MASK | codec
        whole[CRC_FROM - _CRC_BYTES : CRC_FROM] = crc32c(whole[CRC_FROM:]).to_bytes(_CRC_BYTES, "big")
        return bytes(whole)

    return rewrite(folder, offset, recoded)


def rewrite(folder: Path, offset: int, alter: Callable[[bytes], bytes]) -> Batch:
    """Replace the bytes of the stored batch that holds an offset.

    Args:
        folder: as for `flip`.
        offset: as for `flip`.
        alter: returns the new bytes, as many as before.

    Returns:
        the batch as it was.
    """
    segment, begin, batch = _stored(folder, offset)
    data = alter(bytes(batch.whole))
    assert len(data) == len(batch.whole)  # noqa: S101 - else all behind it would be torn
    with segment.open("r+b") as file:
        file.seek(begin)
        file.write(data)
    return batch


def _stored(folder: Path, offset: int) -> tuple[Path, int, Batch]:
    """The segment of the batch that holds an offset, its position there, and the batch.

    Raises:
        DrkitError: there is none.
    """
    for segment in sorted(folder.glob("*.log")):
        begin = 0
        for batch in parse(memoryview(segment.read_bytes())):
            if batch.base_offset <= offset <= batch.last_offset:
                return segment, begin, batch
            begin += len(batch.whole)
    raise DrkitError(f"no batch of {folder} holds offset {offset}")
