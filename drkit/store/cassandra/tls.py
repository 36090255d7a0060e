"""TLS to Cassandra: the TLS part of a store URL as an `ssl` context. Doesn't load the driver."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

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
        raise _wrong(f"ca={tls.ca} holds no certificate: {error}", "Name the CA certificate as PEM") from None
    context.check_hostname = tls.verify_host
    if tls.certificate is not None and tls.key is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key, _no_password)
        except _LockedError:
            remedy = f"openssl pkey -in {tls.key} -out FILE, readable only for drkit; then key=FILE"
            raise _wrong(f"key={tls.key} is protected by a password", remedy) from None
        except (OSError, ValueError) as error:
            what = f"certificate={tls.certificate} and key={tls.key} don't match, or are no PEM files: {error}"
            raise _wrong(what, "Name a certificate as PEM and its private key") from None
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
        raise _wrong(f"{name}={path} can't be read: {said}", "Correct the path, or make the file readable") from None


def _wrong(what: str, remedy: str) -> ConfigError:
    return ConfigError(f"store.url (cassandra): {what}", remedy=remedy)
