"""Opens a store by its URL; the only module that maps schemes to backends. `store_identity` tells stores apart by
their URLs: in anchors of journals, and between workers.
"""

from __future__ import annotations

import platform
from hashlib import sha256
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from drkit.model.errors import ConfigError, StoreMissing
from drkit.store.api import Store, StoreSchema, WholeStore
from drkit.store.cassandra.url import parse_cassandra_url
from drkit.store.sqlite.backend import DEFAULT_TIMEOUT_SECONDS, SqliteSchema, SqliteStore
from drkit.store.sqlite.connection import MEMORY

_LONGEST_SECONDS = 86_400.0
_FORMS = "sqlite:///PATH or cassandra://user:password@host1,host2:9042/keyspace?dc=NAME&replication_factor=3"


def open_store(url: str, create: bool = True) -> Store:
    """Open the store that `url` names; see `open_whole_store`."""
    return open_whole_store(url, create)


def open_whole_store(url: str, create: bool = True) -> WholeStore:
    """Open the store that `url` names, with the functions that copies of it need.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db` (optionally `?timeout=SECONDS`), or
            `cassandra://user:password@h1,h2:9042/keyspace?…` (see `cassandra_url`).
        create: create what is missing. If false, a missing store is an error.

    Raises:
        ConfigError: an unknown scheme or parameter, an unreadable URL, a directory that doesn't exist.
        StoreMissing: there is no store, and `create` is false.
        Unreachable: the store doesn't answer.
        Refused: its schema has another version.
        DrkitError: it can't be opened.
    """
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ConfigError("store.url is not a URL", remedy=f"Write it as {_FORMS}")
    if scheme == "sqlite":
        return _open_sqlite(url, create=create)
    if scheme == "cassandra":
        return _open_cassandra(url, create=create)
    raise ConfigError(f"store.url names an unknown kind of store, {scheme!r}", remedy=f"Write it as {_FORMS}")


def open_schema(url: str) -> StoreSchema:
    """Open the store that `url` names, of any schema version, for `drkit store migrate`.

    Raises:
        ConfigError: like `open_whole_store`.
        StoreMissing: there is none.
        Unreachable: the store doesn't answer.
        DrkitError: it can't be opened.
    """
    scheme, separator, _ = url.partition("://")
    if scheme == "sqlite" and separator:
        path, timeout_seconds = _sqlite_file(url)
        return SqliteSchema(path, timeout_seconds=timeout_seconds)
    if scheme == "cassandra" and separator:
        from drkit.store.cassandra.schema import CassandraSchema  # noqa: PLC0415  # as below

        return CassandraSchema(parse_cassandra_url(url))
    raise ConfigError("store.url names an unknown kind of store", remedy=f"Write it as {_FORMS}")


def _open_sqlite(url: str, *, create: bool) -> WholeStore:
    path, timeout_seconds = _sqlite_file(url)
    return SqliteStore(path, create=create or path == MEMORY, timeout_seconds=timeout_seconds)


def _sqlite_file(url: str) -> tuple[str, float]:
    """The path, or `MEMORY`, and the timeout in seconds."""
    location, _, query = url.partition("?")
    if not location.startswith("sqlite:///") or location == "sqlite:///":
        raise ConfigError(
            f"store.url {url!r} names no file",
            remedy="Write sqlite:///relative.db or sqlite:////absolute/path.db (three or four slashes)",
        )
    timeout_seconds = _timeout(query)
    path = location.removeprefix("sqlite:///")
    file = Path(path)
    if path != MEMORY and not file.parent.is_dir():
        raise ConfigError(
            f"store.url: there is no directory {file.parent} for the store", remedy="Create it or correct store.url"
        )
    return path, timeout_seconds


def _open_cassandra(url: str, *, create: bool) -> WholeStore:
    location = parse_cassandra_url(url)
    # the driver takes a third of a second to import; don't load it for a SQLite store
    from drkit.store.cassandra.backend import CassandraStore  # noqa: PLC0415
    from drkit.store.cassandra.schema import bring_up  # noqa: PLC0415
    from drkit.store.cassandra.session import CassandraSession  # noqa: PLC0415

    session = CassandraSession(location)
    try:
        if bring_up(session, create=create):
            return CassandraStore(session)
    except BaseException:
        session.close()
        raise
    session.close()
    raise StoreMissing(f"there is no store in {location}")


def _timeout(query: str) -> float:
    seconds = DEFAULT_TIMEOUT_SECONDS
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "timeout":
            raise ConfigError(f"store.url: unknown parameter {name!r}", remedy="A sqlite URL knows only timeout")
        try:
            seconds = float(value)
        except ValueError:
            seconds = -1.0
        if not 0 < seconds <= _LONGEST_SECONDS:
            raise ConfigError(
                f"store.url: timeout={value!r} is not a number of seconds from 0 to 86,400", remedy="Correct it"
            )
    return seconds


_FILE = "sqlite"


def store_identity(url: str) -> str:
    """A digest of a store's address without user and password.

    For a store in a file it includes the machine. The order of hosts doesn't matter, because operators differ in it.
    """
    parts = urlsplit(url)
    where = ",".join(sorted(parts.netloc.rpartition("@")[2].split(",")))
    machine = platform.node() if parts.scheme == _FILE else ""
    return sha256(f"{parts.scheme}|{machine}|{where}|{parts.path}".encode()).hexdigest()[:16]


def in_a_file(url: str) -> bool:
    """Whether a store is a file on one machine: then another identity is another store."""
    return urlsplit(url).scheme == _FILE
