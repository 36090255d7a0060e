"""TLS to Cassandra: what a store URL says about it, as Python's `ssl` takes it. Doesn't load the driver."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from drkit.model.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CassandraTls:
    """Paths of PEM files.

    Attributes:
        ca: the authority that signed the nodes' certificates; None: those that the system trusts.
        certificate: drkit's own, with those that it hangs on, where nodes ask for one.
        key: its key, not locked.
        verify_host: whether a node's certificate must be made out to the IP address by which it is reached.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    verify_host: bool = True


def tls_context(tls: CassandraTls) -> ssl.SSLContext:
    """A client's context.

    Raises:
        ConfigError: a file can't be read or isn't what it should be.
    """
    for name, path in (("ca", tls.ca), ("certificate", tls.certificate), ("key", tls.key)):
        if path is not None:
            _readable(name, path)
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except (OSError, ValueError) as error:
        raise _wrong(f"ca={tls.ca} holds no certificate: {error}", "Name the authority's certificate as PEM") from None
    context.check_hostname = tls.verify_host
    if tls.certificate is not None and tls.key is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key, _no_password)
        except _LockedError:
            remedy = f"openssl pkey -in {tls.key} -out FILE, readable for drkit alone; then key=FILE"
            raise _wrong(f"key={tls.key} is locked by a password", remedy) from None
        except (OSError, ValueError) as error:
            what = f"certificate={tls.certificate} and key={tls.key} don't fit each other, or are no PEM: {error}"
            raise _wrong(what, "Name a certificate as PEM and the key that it was made with") from None
    return context


class _LockedError(Exception):
    """The key asks for a password."""


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
