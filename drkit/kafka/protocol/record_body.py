"""Key, value and headers of a record as format 2 encodes them (KIP-98): read, written, added to. Pure.

    key length varint | key | value length varint | value | headers varint | (name length, name, value length, value) …

A length of -1 means null, 0 means empty. A header's name that isn't UTF-8 becomes lone surrogates,
and the same bytes again where it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from drkit.kafka.protocol.records import NUMBERS, encoded, read_varint

Header = tuple[str, bytes | None]

_ONE_BYTE = 0x80
_KEPT = "surrogateescape"
_NONE = encoded(-1)
_FEW = len(NUMBERS)


def decode(body: bytes) -> tuple[bytes | None, bytes | None, list[Header]]:
    """Key, value and headers.

    Args:
        body: of one record (`drkit.kafka.protocol.records.RawRecord.body`).

    Raises:
        IndexError: the body ends too early, or holds more than it says.
    """
    byte = body[0]  # lengths of one byte are read inline: a call for each is most of a short record's cost
    size, at = ((byte >> 1) ^ -(byte & 1), 1) if byte < _ONE_BYTE else read_varint(body, 0)
    if size < 0:
        key = None
    else:
        key = body[at : at + size]
        at += size
    byte = body[at]
    size, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < _ONE_BYTE else read_varint(body, at)
    if size < 0:
        value = None
    else:
        value = body[at : at + size]
        at += size
    if not body[at]:
        if at + 1 != len(body):  # a slice beyond the end is silently shorter
            raise _misfit(body, at + 1)
        return key, value, []
    count, at = read_varint(body, at)
    headers: list[Header] = []
    for _ in range(count):
        size, at = read_varint(body, at)
        name = body[at : at + size].decode(errors=_KEPT)
        at += size
        size, at = read_varint(body, at)
        if size < 0:
            headers.append((name, None))
        else:
            headers.append((name, body[at : at + size]))
            at += size
    if at != len(body):
        raise _misfit(body, at)
    return key, value, headers


def _misfit(body: bytes, at: int) -> IndexError:
    return IndexError(f"the body takes {at} bytes, and there are {len(body)}")


def encode(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> bytes:
    """The body of a record.

    Raises:
        UnicodeEncodeError: a header's name can't be written as UTF-8.
    """
    parts: list[bytes] = []
    add = parts.append
    for content in (key, value):
        if content is None:
            add(_NONE)
        else:
            size = len(content)
            add(NUMBERS[size] if size < _FEW else encoded(size))
            add(content)
    add(encoded(len(headers)))
    for name, content in headers:
        add(_named(name))
        if content is None:
            add(_NONE)
        else:
            size = len(content)
            add(NUMBERS[size] if size < _FEW else encoded(size))
            add(content)
    return b"".join(parts)


def can_name(name: str) -> bool:
    """Whether a text can be a header's name: UTF-8 can hold it, or it was decoded from other bytes."""
    try:
        return _named(name) is not None
    except UnicodeEncodeError:
        return False


def encode_headers(headers: Sequence[Header]) -> bytes:
    """Headers as they are in a body, without their number: what `with_headers` adds."""
    return encode(None, None, headers)[2 + len(encoded(len(headers))) :]


def with_headers(body: bytes, count: int, more: bytes) -> bytes:
    """A body with further headers after its own, which are not decoded.

    Args:
        body: as it is.
        count: how many come.
        more: they, from `encode_headers`.

    Raises:
        IndexError: the body ends too early.
    """
    first = body[0]
    if first < _ONE_BYTE:
        at = 1 + ((first >> 1) if not first & 1 else 0)
    else:
        size, at = read_varint(body, 0)
        at += max(size, 0)
    size, at = read_varint(body, at)
    if size > 0:
        at += size
    own = body[at]
    if own < _ONE_BYTE:
        return body[:at] + NUMBERS[(own >> 1) + count] + body[at + 1 :] + more
    number, after = read_varint(body, at)
    return body[:at] + encoded(number + count) + body[after:] + more


@lru_cache(maxsize=1_000)
def _named(name: str) -> bytes:
    """A header's name with its length before it."""
    plain = name.encode(errors=_KEPT)
    return encoded(len(plain)) + plain
