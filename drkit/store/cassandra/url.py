"""Reading a store URL of the form
`cassandra://user:password@h1,h2:9042/keyspace?dc=dr&replication_factor=3`.

Parameters: `dc` (required: the data centre whose nodes are used, and whose quorum decides),
`replication_factor` or `replication=dr:3,primary:3` (used once, to create the keyspace),
`consistency` (LOCAL_QUORUM), `serial_consistency` (LOCAL_SERIAL), `timeout` (seconds, 10); `tls=true`, and `ca`,
`certificate`, `key` (paths of PEM files) and `verify_host`, each of which implies TLS.
User and password are percent-encoded where they contain special characters.

Every drkit process of an estate must name the same `dc`: a quorum elsewhere may not have the newest rows yet. Use the
DR side's, because it must work when the primary site is down.

The TLS part becomes an `ssl` context. Nothing here loads the driver.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qsl, unquote

from drkit.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CassandraTls:
    """Paths of PEM files.

    Attributes:
        ca: the CA certificate for the nodes' certificates; None: the system's.
        certificate: drkit's client certificate, with its chain, where nodes require one.
        key: its private key, without a password.
        verify_host: whether a node's certificate must contain the IP address by which it is reached.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify_host: bool = True


def tls_context(tls: CassandraTls) -> ssl.SSLContext:
    """Make a client's context.

    Raises:
        ConfigError: a file can't be read or has the wrong content.
    """
    for name, path in (("ca", tls.ca), ("certificate", tls.certificate), ("key", tls.key)):
        if path is not None:
            _readable(name, path)
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ValueError) as error:
        raise _tls_wrong(f"ca={tls.ca} holds no certificate: {error}", "Name the CA certificate as PEM") from None
    context.check_hostname = tls.verify_host
    if tls.certificate is not None and tls.key is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key, _no_password)
        except _LockedError:
            remedy = f"openssl pkey -in {tls.key} -out FILE, readable only for drkit; then key=FILE"
            raise _tls_wrong(f"key={tls.key} is protected by a password", remedy) from None
        except (OSError, ValueError) as error:
            what = f"certificate={tls.certificate} and key={tls.key} don't match, or are no PEM files: {error}"
            raise _tls_wrong(what, "Name a certificate as PEM and its private key") from None
    return context


class _LockedError(Exception):
    """The key needs a password."""


def _no_password() -> bytes:
    raise _LockedError


def _readable(name: str, path: str) -> None:
    try:
        Path(path).open("rb").close()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise _tls_wrong(
            f"{name}={path} can't be read: {said}", "Correct the path, or make the file readable"
        ) from None


def _tls_wrong(what: str, remedy: str) -> ConfigError:
    return ConfigError(f"store.url (cassandra): {what}", remedy=remedy)


DEFAULT_PORT = 9042
DEFAULT_TIMEOUT_SECONDS = 10.0
_LONGEST_SECONDS = 86_400.0
_HIGHEST_PORT = 65535
CONSISTENCIES = ("LOCAL_QUORUM", "QUORUM", "ALL")
"""The consistency that a reader needs to see all writes; with a weaker one a translation could miss rows."""
SERIAL_CONSISTENCIES = ("LOCAL_SERIAL", "SERIAL")

_TLS = ("ca", "certificate", "key", "verify_host")
_PARAMETERS = (
    "dc",
    "replication_factor",
    "replication",
    "consistency",
    "serial_consistency",
    "timeout",
    "tls",
    *_TLS,
)
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_DATA_CENTRE = re.compile(r"[A-Za-z0-9_.-]+")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(?::([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class CassandraLocation:
    """The nodes and keyspace of a Cassandra store, and how to ask them; `tls` None: unencrypted.

    `replication`: replicas by data centre, or empty.
    """

    contact_points: tuple[tuple[str, int], ...]
    keyspace: str
    dc: str
    user: str | None = None
    password: str = field(default="", repr=False)
    replication: tuple[tuple[str, int], ...] = ()
    consistency: str = CONSISTENCIES[0]
    serial_consistency: str = SERIAL_CONSISTENCIES[0]
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    tls: CassandraTls | None = None

    def __str__(self) -> str:
        """Hosts and keyspace, for messages; never user or password."""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.contact_points)
        return f"cassandra {hosts} keyspace {self.keyspace}"


def parse_cassandra_url(url: str) -> CassandraLocation:
    """Read and check a store URL.

    Raises:
        ConfigError: what is wrong and what is expected; never with the password.
    """
    rest = url.removeprefix("cassandra://")
    location, _, query = rest.partition("?")
    authority, _, keyspace = location.partition("/")
    if "@" in keyspace or "@" in query:  # a / or ? in the password ended the address early: don't repeat any of it
        _wrong("an @ follows the hosts", "Percent-encode special characters of the password (/ is %2F, ? is %3F)")
    credentials, at, hosts = authority.rpartition("@")
    user, password = _credentials(credentials) if at else (None, "")
    contact_points = _contact_points(hosts)
    if not _KEYSPACE.fullmatch(keyspace):
        _wrong(
            f"{keyspace!r} is not a keyspace name" if keyspace else "it names no keyspace",
            "End the address with /KEYSPACE: lower case letters, digits and _, at most 48",
        )
    parameters = _parameters(query)
    dc = parameters.get("dc", "")
    if not _DATA_CENTRE.fullmatch(dc):
        _wrong("it names no data centre", "Add dc=NAME, the data centre near drkit (`nodetool status` shows it)")
    return CassandraLocation(
        contact_points,
        keyspace,
        dc,
        user,
        password,
        _replication(parameters, dc),
        _one_of("consistency", parameters, CONSISTENCIES),
        _one_of("serial_consistency", parameters, SERIAL_CONSISTENCIES),
        _timeout(parameters),
        _tls(parameters),
    )


def _wrong(what: str, remedy: str) -> NoReturn:
    raise ConfigError(f"store.url (cassandra): {what}", remedy=remedy)


def _credentials(text: str) -> tuple[str, str]:
    user, colon, password = text.partition(":")
    if not user or not colon:
        _wrong("the part before @ is not user:password", "Percent-encode special characters (@ is %40, / is %2F)")
    return unquote(user), unquote(password)


def _contact_points(text: str) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int | None]] = []
    for part in text.split(","):
        match = _HOST_PORT.fullmatch(part.strip())
        if match is None:
            _wrong(
                # don't repeat what follows the colon: it may be a password without its host
                f"{part.strip().partition(':')[0]!r} is not host:port" if part.strip() else "a host is missing",
                "Write hosts as h1,h2:9042; special characters of a password must be percent-encoded",
            )
        host, port = match.groups()
        if port is not None and not 0 < int(port) <= _HIGHEST_PORT:
            _wrong(f"port {port} is not from 1 to {_HIGHEST_PORT}", "Write hosts as h1,h2:9042")
        found.append((host.strip("[]"), int(port) if port else None))
    ports = {port for _, port in found if port is not None}
    if len(ports) > 1 and any(port is None for _, port in found):
        _wrong("some hosts have a port and some have none", "Give one port for all, or one for each")
    shared = ports.pop() if len(ports) == 1 else DEFAULT_PORT
    return tuple((host, shared if port is None else port) for host, port in found)


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _PARAMETERS:
            _wrong(f"unknown parameter {name!r}", f"Known are: {', '.join(_PARAMETERS)}")
        if name in found:
            _wrong(f"parameter {name!r} is given twice", "Give it once")
        found[name] = value
    return found


def _replication(parameters: dict[str, str], dc: str) -> tuple[tuple[str, int], ...]:
    factor, replication = parameters.get("replication_factor"), parameters.get("replication")
    if factor is not None and replication is not None:
        _wrong("both replication_factor and replication are given", "Give one: replication names every data centre")
    if factor is not None:
        return ((dc, _replicas("replication_factor", factor)),)
    if replication is None:
        return ()
    found: dict[str, int] = {}
    for part in replication.split(","):
        name, _, count = part.partition(":")
        if not _DATA_CENTRE.fullmatch(name):
            _wrong(f"replication={replication!r} is not dc:replicas", "Write e.g. replication=dr:3,primary:3")
        found[name] = _replicas("replication", count)
    if dc not in found:
        _wrong(f"replication={replication!r} has no replicas in dc={dc}", "That data centre's quorum decides; name it")
    return tuple(found.items())


def _replicas(name: str, text: str) -> int:
    if not re.fullmatch("[1-9][0-9]{0,3}", text):
        _wrong(f"{name}: {text!r} is no number of replicas", "Give a whole number from 1 on")
    return int(text)


def _one_of(name: str, parameters: dict[str, str], known: tuple[str, ...]) -> str:
    value = parameters.get(name, known[0]).upper()
    if value not in known:
        _wrong(f"{name}={value} is not possible", f"Use one of {', '.join(known)}: weaker ones can miss what was kept")
    return value


def _timeout(parameters: dict[str, str]) -> float:
    text = parameters.get("timeout")
    if text is None:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= _LONGEST_SECONDS:
        _wrong(f"timeout={text!r} is not a number of seconds from 0 to 86,400", "Correct it")
    return seconds


def _tls(parameters: dict[str, str]) -> CassandraTls | None:
    given = [name for name in _TLS if name in parameters]
    if not _flag("tls", parameters, default=bool(given)):
        if given:
            _wrong(f"{given[0]} is given, and tls=false", "Leave one of them out")
        return None
    for name in ("ca", "certificate", "key"):
        if parameters.get(name) == "":
            _wrong(f"{name} names no file", f"Write {name}=PATH, a PEM file")
    if ("certificate" in parameters) != ("key" in parameters):
        _wrong("certificate and key go together", "Give both, or none")
    return CassandraTls(
        parameters.get("ca"),
        parameters.get("certificate"),
        parameters.get("key"),
        _flag("verify_host", parameters, default=True),
    )


def _flag(name: str, parameters: dict[str, str], *, default: bool) -> bool:
    value = parameters.get(name, str(default)).lower()
    if value not in {"true", "false"}:
        _wrong(f"{name}={value!r} is neither true nor false", "Correct it")
    return value == "true"
