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
from collections.abc import Callable

from confluent_kafka import Message

from drkit.config import Config
from drkit.config.callables import named_callable
from drkit.mirror.provenance import NAMES, Hop, origin, passed, stamped
from drkit.model.errors import ConfigError
from drkit.model.record import Header, Record
from drkit.model.topology import Link

_PROBE = Record("topic", 0, 0, 0, None, None)


class AlterationFailed(Exception):
    """One of a link's callables could not answer for a record."""


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

    def apply(self, message: Message) -> bool:
        """Alter a record of the source in place; false: it is to be left out.

        Raises:
            AlterationFailed: a callable raised or answered something else; the message says which and how.
        """
        before: list[Header] = message.headers() or []  # type: ignore[assignment]  # pairs with bytes, as consumed
        came = self._marks and any(header[0] in NAMES for header in before)
        if came and self._target_id in passed(before):
            return False
        headers = before
        if self._asks and message.topic() != self._canary:
            record = as_record(message)
            if self._filter is not None and not self._keeps(record):
                return False
            if self._transform is not None:
                altered = self._transformed(record)
                if altered is None:
                    return False
                message.set_key(altered.key)
                message.set_value(altered.value)
                headers = list(altered.headers)
        if self._marks and (came or headers is not before):
            headers = stamped(before, headers, self._hop(message))
        elif self._marks:
            headers = [*before, *origin(self._hop(message))]  # the usual case, without looking at each header again
        if headers is not before:
            message.set_headers(headers)  # type: ignore[arg-type]  # a list of such pairs
        return True

    def _hop(self, message: Message) -> Hop:
        return Hop(self._source_id, str(message.topic()), message.partition() or 0, message.offset() or 0)

    def _keeps(self, record: Record) -> bool:
        name = f"filter {self._link.filter}"
        answer = _asked(name, self._filter, record)
        if not isinstance(answer, bool):
            raise AlterationFailed(f"{name} answered {type(answer).__name__} instead of True or False{_at(record)}")
        return answer

    def _transformed(self, record: Record) -> Record | None:
        name = f"transform {self._link.transform}"
        answer = _asked(name, self._transform, record)
        if answer is None:
            return None
        if not isinstance(answer, Record):
            raise AlterationFailed(f"{name} answered {type(answer).__name__} instead of a Record or None{_at(record)}")
        if answer[:4] != record[:4]:
            raise AlterationFailed(
                f"{name} changed the record's topic, partition, offset or timestamp{_at(record)}: a transform changes "
                "key, value and headers; topics are renamed by the link's `rename`"
            )
        if not (_is_bytes(answer.key) and _is_bytes(answer.value) and _are_headers(answer.headers)):
            raise AlterationFailed(
                f"{name} answered a record whose key, value or headers Kafka can't hold{_at(record)}: key and value "
                "are bytes or None, headers pairs of str and (bytes or None)"
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
    except Exception as error:
        raise AlterationFailed(f"{name} raised {type(error).__name__}: {error}{_at(record)}") from error


def _at(record: Record) -> str:
    return f" at source offset {record.offset} of {record.topic}:{record.partition}"


def _is_bytes(value: object) -> bool:
    return value is None or isinstance(value, bytes)


def _are_headers(headers: object) -> bool:
    if not isinstance(headers, tuple | list):
        return False
    pairs = [pair for pair in headers if isinstance(pair, tuple) and len(pair) == 2]  # noqa: PLR2004 - name and value
    return len(pairs) == len(headers) and all(isinstance(name, str) and _is_bytes(value) for name, value in pairs)
