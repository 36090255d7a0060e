"""A link's changes of each record: drop, alter, add its provenance.

`filter` and `transform` are the user's own callables, named ``module:function`` in `[[links]]`:

    filter     (Record) -> bool             False: the record is left out
    transform  (Record) -> Record | None    None: the record is left out

They change key, value and headers; nothing else. A record stays in its partition and keeps its
timestamp, since positions are translated per partition and `--at` rests on timestamps; topics are
renamed by `rename`, since a target topic must exist before its first record. A callable must return the
same result every time for a record: after a crash the mirror calls it again.

A dropped record is a hole in the mapping, like a compacted one. A callable that raises, or returns
something else, halts the partition before that record (`AlterationFailed`): none is ever skipped.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import Message

from drkit.config import Config
from drkit.config.schema.base import named_callable
from drkit.kafka.protocol import record_body
from drkit.kafka.protocol.records import NUMBERS, Damaged
from drkit.kafka.protocol.records import RawRecord as EncodedRecord
from drkit.kafka.transform.provenance import NAMES, OFFSET, OWN_NAMES, Hop, origin, passed, stamped
from drkit.model.errors import ConfigError
from drkit.model.record import Record
from drkit.model.topology import Link, TopicPartition

_HERE = "where drkit is installed"
_PROBE = Record("topic", 0, 0, 0, None, None)


class AlterationFailed(Exception):
    """One of a link's callables failed for a record, the one at source offset `offset`."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


class Alteration:
    """A link's filter, transform and provenance, applied to one record after the other.

    Args:
        link: the link; names the callables in errors.
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
        self._canary = link.canary_topic  # drkit's own topic: the callables don't see it
        self._source_id = ""
        self._target_id = ""

    @classmethod
    def of(cls, config: Config, link: Link) -> Alteration | None:
        """The configured changes of a link; None: its records stay unchanged.

        Raises:
            ConfigError: a callable can't be imported, called, or called with one record.
        """
        return cls.named(link, configured_at(config, link)) if link.alters else None

    @classmethod
    def named(cls, link: Link, where: str, *, installed: str = _HERE) -> Alteration:
        """The changes of a link that alters records.

        Args:
            link: the link.
            where: file and table of the configuration that name the callables, for errors.
            installed: where they have to be installed, for the remedy.

        Raises:
            ConfigError: as `of`.
        """
        return cls(
            link,
            None if link.filter is None else load(link.filter, f"{where}.filter", installed),
            None if link.transform is None else load(link.transform, f"{where}.transform", installed),
        )

    def identify(self, source_id: str, target_id: str) -> None:
        """Set the clusters' ids (Kafka's); required before the first record."""
        self._source_id, self._target_id = source_id, target_id

    @property
    def callables(self) -> str:
        """The link's callables by their names, for messages; "" where it has none."""
        names = (("filter", self._link.filter), ("transform", self._link.transform))
        return " and ".join(f"{kind} {name}" for kind, name in names if name is not None) if self._asks else ""

    @property
    def source_id(self) -> str:
        """Kafka's id of the source, once it is known."""
        return self._source_id

    def records(self, tp: TopicPartition, records: Iterable[EncodedRecord]) -> Iterator[EncodedRecord]:
        """The altered records of a source partition, without dropped ones.

        Unchanged records keep their encoding, and only needed fields are decoded.

        Raises:
            AlterationFailed: a callable raised or returned something else; records before it were yielded.
            Damaged: a record can't be decoded.
        """
        topic, partition = tp
        asks = self._asks and topic != self._canary
        marks = _Marks(self._source_id, tp) if self._marks else None
        for record in records:
            offset, timestamp, body = record
            plain = bytes(body)
            named = marks is not None and OWN_NAMES in plain
            try:
                if marks is not None and not (asks or named):
                    yield EncodedRecord(offset, timestamp, marks.added(plain, offset))
                    continue
                key, value, headers = record_body.decode(plain)
            except IndexError as error:
                raise Damaged(f"the record at offset {offset} ends too early") from error
            before = Record(topic, partition, offset, timestamp, key, value, tuple(headers))
            came = named and any(name in NAMES for name, _ in headers)
            if came and self._target_id in passed(headers):
                continue
            after = self._answered(before) if asks else before
            if after is None:
                continue
            if after is not before:
                plain = record_body.encode(after.key, after.value, after.headers)
            elif marks is None:
                yield record
                continue
            if marks is not None and (came or (after is not before and OWN_NAMES in plain)):
                again = stamped(headers, after.headers, Hop(self._source_id, topic, partition, offset))
                plain = record_body.encode(after.key, after.value, again)
            elif marks is not None:
                plain = marks.added(plain, offset)
            yield EncodedRecord(offset, timestamp, plain)

    def apply(self, record: Record) -> Record | None:
        """A source record as it is on the target; None: it is dropped.

        Raises:
            AlterationFailed: a callable raised or returned something else; the message names it.
        """
        body = record_body.encode(record.key, record.value, record.headers)
        tp = TopicPartition(record.topic, record.partition)
        for altered in self.records(tp, [EncodedRecord(record.offset, record.timestamp, body)]):
            key, value, headers = record_body.decode(bytes(altered.body))
            return record.replace(key=key, value=value, headers=tuple(headers))
        return None

    def _answered(self, record: Record) -> Record | None:
        """The result of the callables."""
        if self._filter is not None and not self._keeps(self._filter, record):
            return None
        return record if self._transform is None else self._transformed(self._transform, record)

    def _keeps(self, asked: Callable[[Record], object], record: Record) -> bool:
        try:
            answer = asked(record)
        except (Exception, SystemExit) as error:
            raise _raised(f"filter {self._link.filter}", error, record) from error
        if not isinstance(answer, bool):
            name = f"filter {self._link.filter}"
            raise _failed(record, f"{name} answered {type(answer).__name__} instead of True or False")
        return answer

    def _transformed(self, asked: Callable[[Record], object], record: Record) -> Record | None:
        try:
            answer = asked(record)
        except (Exception, SystemExit) as error:
            raise _raised(f"transform {self._link.transform}", error, record) from error
        if answer is None or answer is record:
            return None if answer is None else record
        name = f"transform {self._link.transform}"
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


def configured_at(config: Config, link: Link) -> str:
    """File and table of a link's configuration, for errors."""
    number = next((n for n, each in enumerate(config.links) if each.link().id == link.id), 0)
    return f"{config.file or 'the configuration'}: links.{number}"


def load(name: str, key: str, installed: str = _HERE) -> Callable[[Record], object]:
    """Import a callable that is named ``module:function``, and see that it takes one record.

    Args:
        name: the callable.
        key: file and key of the configuration that name it, for the error.
        installed: where it has to be installed, for the remedy.

    Raises:
        ConfigError: it can't be imported, isn't callable, or can't be called with one record.
    """
    found: Callable[[Record], object] = named_callable(name, key, installed)
    if inspect.isclass(found):
        raise ConfigError(f"{key} = {name!r}: that is not a function", remedy="Name a function that takes one Record")
    if inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
        raise ConfigError(
            f"{key} = {name!r}: an asynchronous function or generator can't be asked about a record",
            remedy="Name a plain function that takes one Record",
        )
    try:
        signature = inspect.signature(found)
    except ValueError:
        return found  # written in C without a signature: the first record shows it
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


def _raised(name: str, error: BaseException, record: Record) -> AlterationFailed:
    return _failed(record, f"{name} raised {type(error).__name__}: {error}")


def _failed(record: Record, what: str, why: str = "") -> AlterationFailed:
    where = f" at source offset {record.offset} of {record.topic}:{record.partition}"
    return AlterationFailed(f"{what}{where}{why}", record.offset)


def _is_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def _are_headers(headers: object) -> bool:
    if not isinstance(headers, tuple | list):
        return False
    for pair in headers:
        if not (isinstance(pair, tuple) and len(pair) == 2):  # noqa: PLR2004 - name and value
            return False
        name, value = pair
        if not (isinstance(name, str) and _is_bytes(value) and record_body.can_name(name)):
            return False
    return True


class _Marks:
    """The encoded provenance headers of one partition's records: all but the offset are the same."""

    def __init__(self, source_id: str, tp: TopicPartition) -> None:
        headers = origin(Hop(source_id, *tp, 0))
        self._count = len(headers)
        first, (_, zero) = headers[:-1], headers[-1]
        name = record_body.encode_headers([(OFFSET, zero)])
        self._first = record_body.encode_headers(first) + name[: -len(b"\x02" + (zero or b""))]

    def added(self, body: bytes, offset: int) -> bytes:
        """A record's body with them after its own headers."""
        digits = b"%d" % offset
        return record_body.with_headers(body, self._count, self._first + NUMBERS[len(digits)] + digits)
