"""What a link does to each record: leave out, alter, mark with its provenance.

`filter` and `transform` are the user's own callables, named ``module:function`` in `[[links]]`:

    filter     (Record) -> bool             False: the record is left out
    transform  (Record) -> Record | None    None: the record is left out

They change key, value and headers; nothing else. A record stays in its partition and keeps its
timestamp, since positions are translated per partition and `--at` rests on timestamps; topics are
renamed by `rename`, since a target topic must exist before its first record. A callable gives the
same answer whenever it is asked about a record: after a crash the mirror asks it again.

What is left out is a hole in the mapping, like what compaction removed. A callable that raises, or gives
something else, stops the partition before that record (`AlterationFailed`): none is ever skipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import Message

from drkit.config import Config
from drkit.config.callables import named_callable
from drkit.kafka import record_body
from drkit.kafka.records import NUMBERS, Damaged
from drkit.kafka.records import Record as EncodedRecord
from drkit.mirror.provenance import NAMES, OFFSET, OWN_NAMES, Hop, origin, passed, stamped
from drkit.model.errors import ConfigError
from drkit.model.record import Header, Record
from drkit.model.topology import Link, TopicPartition

_PROBE = Record("topic", 0, 0, 0, None, None)


class AlterationFailed(Exception):
    """One of a link's callables could not answer for a record, the one at source offset `offset`."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class Alteration:
    """A link's filter, transform and provenance, applied to one record after the other.

    Args:
        link: the link; names the callables where they fail.
        filter_: the filter, None: there is none.
        transform: the transform, None: there is none.
    """

    def __init__(
        self,
        link: Link,
        filter_: Callable[[Record], object] | None = None,
        transform: Callable[[Record], object] | None = None,
    ) -> None:
        self._link = link
        self._filter = filter_
        self._transform = transform
        self._marks = link.marks
        self._asks = filter_ is not None or transform is not None
        self._canary = link.canary_topic  # drkit's own: none of the callables' business
        self._source_id = ""
        self._target_id = ""

    @classmethod
    def of(cls, config: Config, link: Link) -> Alteration | None:
        """What the configuration says of a link; None: its records stay as they are.

        Raises:
            ConfigError: a callable can't be imported, called, or called with one record.
        """
        if not link.alters:
            return None
        number = next((n for n, each in enumerate(config.links) if each.link().id == link.id), 0)
        where = f"{config.file or 'the configuration'}: links.{number}"
        return cls(
            link,
            None if link.filter is None else load(link.filter, f"{where}.filter"),
            None if link.transform is None else load(link.transform, f"{where}.transform"),
        )

    def identify(self, source_id: str, target_id: str) -> None:
        """Say which clusters these are, by Kafka's ids; due before the first record."""
        self._source_id, self._target_id = source_id, target_id

    @property
    def source_id(self) -> str:
        """Kafka's id of the source, once it is known."""
        return self._source_id

    def records(self, tp: TopicPartition, records: Iterable[EncodedRecord]) -> Iterator[EncodedRecord]:
        """What becomes of records of a source partition: each altered, without those that are left out.

        What the callables leave as it is stays as it was encoded, and nothing is decoded that nobody asks for.

        Raises:
            AlterationFailed: a callable raised or answered something else; what came before was given out.
            Damaged: a record can't be decoded.
        """
        asks = self._asks and tp.topic != self._canary
        marks = _Marks(self._source_id, tp) if self._marks else None
        for record in records:
            offset, timestamp, body = record
            plain = bytes(body)
            try:
                if not asks and marks is not None and OWN_NAMES not in plain:
                    yield EncodedRecord(offset, timestamp, marks.added(plain, offset))
                    continue
                before = Record(tp.topic, tp.partition, offset, timestamp, *_decoded(plain))
            except IndexError as error:
                raise Damaged(f"the record at offset {offset} ends too early") from error
            after = self._altered(before, asks=asks)
            if after is None:
                continue
            if after is not before:
                yield EncodedRecord(offset, timestamp, record_body.encode(after.key, after.value, after.headers))
            elif marks is not None:
                yield EncodedRecord(offset, timestamp, marks.added(plain, offset))
            else:
                yield record

    def apply(self, record: Record) -> Record | None:
        """What a record of the source is on the target; None: it is left out.

        Raises:
            AlterationFailed: a callable raised or answered something else; the message says which and how.
        """
        after = self._altered(record, asks=self._asks and record.topic != self._canary)
        if after is None or not self._marks or after is not record:
            return after
        return record.replace(headers=(*record.headers, *origin(self._hop(record))))

    def _altered(self, record: Record, *, asks: bool) -> Record | None:
        """What the callables make of it, with its provenance; the very record where there is nothing to it but the
        usual provenance that is still to be added.
        """
        came = self._marks and any(header[0] in NAMES for header in record.headers)
        if came and self._target_id in passed(record.headers):
            return None
        after = self._answered(record) if asks else record
        if after is None or not self._marks or (after is record and not came):
            return after
        headers = stamped(record.headers, after.headers, self._hop(record))
        return record.replace(key=after.key, value=after.value, headers=tuple(headers))

    def _answered(self, record: Record) -> Record | None:
        """What the callables make of it."""
        if self._filter is not None and not self._keeps(record):
            return None
        return record if self._transform is None else self._transformed(record)

    def _hop(self, record: Record) -> Hop:
        return Hop(self._source_id, record.topic, record.partition, record.offset)

    def _keeps(self, record: Record) -> bool:
        name = f"filter {self._link.filter}"
        answer = _asked(name, self._filter, record)
        if not isinstance(answer, bool):
            raise _failed(record, f"{name} answered {type(answer).__name__} instead of True or False")
        return answer

    def _transformed(self, record: Record) -> Record | None:
        name = f"transform {self._link.transform}"
        answer = _asked(name, self._transform, record)
        if answer is None:
            return None
        if not isinstance(answer, Record):
            raise _failed(record, f"{name} answered {type(answer).__name__} instead of a Record or None")
        if answer[:4] != record[:4]:
            raise _failed(
                record,
                f"{name} changed the record's topic, partition, offset or timestamp",
                ": a transform changes key, value and headers; topics are renamed by the link's `rename`",
            )
        if not (_is_bytes(answer.key) and _is_bytes(answer.value) and _are_headers(answer.headers)):
            raise _failed(
                record,
                f"{name} answered a record whose key, value or headers Kafka can't hold",
                ": key and value are bytes or None, headers pairs of str and (bytes or None)",
            )
        return answer


def load(name: str, key: str) -> Callable[[Record], object]:
    """Import a callable that is named ``module:function``, and see that it takes one record.

    Args:
        name: the callable.
        key: file and key of the configuration that name it, for the error.

    Raises:
        ConfigError: it can't be imported, isn't callable, or can't be called with one record.
    """
    found: Callable[[Record], object] = named_callable(name, key, "where drkit is installed")
    if inspect.isclass(found):
        raise ConfigError(f"{key} = {name!r}: that is no function", remedy="Name a function that takes one Record")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise ConfigError(
            f"{key} = {name!r}: an asynchronous function or generator can't be asked about a record",
            remedy="Name a plain function that takes one Record",
        )
    try:
        signature = inspect.signature(found)
    except ValueError:
        return found  # one that is written in C and doesn't say: the first record will tell
    try:
        signature.bind(_PROBE)
    except TypeError as error:
        raise ConfigError(
            f"{key} = {name!r}: {name.partition(':')[2]}{signature} can't be called with one record: {error}",
            remedy="Give it one parameter, the Record",
        ) from error
    return found


def as_record(message: Message) -> Record:
    """A consumed message as callables see it."""
    return Record(
        str(message.topic()),
        int(message.partition() or 0),
        int(message.offset() or 0),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),  # type: ignore[arg-type]  # pairs with bytes, as consumed
    )


def _asked(name: str, function: Callable[[Record], object] | None, record: Record) -> object:
    try:
        return function(record) if function is not None else None
    except (Exception, SystemExit) as error:
        raise _failed(record, f"{name} raised {type(error).__name__}: {error}") from error


def _failed(record: Record, what: str, why: str = "") -> AlterationFailed:
    where = f" at source offset {record.offset} of {record.topic}:{record.partition}"
    return AlterationFailed(f"{what}{where}{why}", record.offset)


def _is_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def _are_headers(headers: object) -> bool:
    if not isinstance(headers, tuple | list):
        return False
    pairs = [pair for pair in headers if isinstance(pair, tuple) and len(pair) == 2]  # noqa: PLR2004 - name and value
    return len(pairs) == len(headers) and all(_is_name(name) and _is_bytes(value) for name, value in pairs)


def _is_name(name: object) -> bool:
    """Whether it is a text that UTF-8 can hold, or one that was decoded from other bytes."""
    try:
        return isinstance(name, str) and name.encode(errors="surrogateescape") is not None
    except UnicodeEncodeError:
        return False


def _decoded(body: bytes) -> tuple[bytes | None, bytes | None, tuple[Header, ...]]:
    key, value, headers = record_body.decode(body)
    return key, value, tuple(headers)


class _Marks:
    """The headers that say where records of one partition come from, encoded: all but the offset are the same."""

    def __init__(self, source_id: str, tp: TopicPartition) -> None:
        headers = origin(Hop(source_id, *tp, 0))
        self._count = len(headers)
        first, (_, zero) = headers[:-1], headers[-1]
        name = record_body.encode_headers([(OFFSET, zero)])
        self._first = record_body.encode_headers(first) + name[: -len(b"\x02" + (zero or b""))]

    def added(self, body: bytes, offset: int) -> bytes:
        """A record's body with them behind its own headers."""
        digits = b"%d" % offset
        return record_body.with_headers(body, self._count, self._first + NUMBERS[len(digits)] + digits)
