"""Why a broker can't be talked to: certificates, passwords, protocols. kafka-python would only try again.

`Manager` is kafka-python's connection manager, made to tell what can't get better by itself: its own
bootstrap logs the reason and goes on until its time is up.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager

from drkit.model.errors import DrkitError, NotLetIn, Unreachable

_EXPIRED, _NOT_YET_VALID = 10, 9
_NO_ISSUER = frozenset({2, 18, 19, 20, 21})
_WRONG_HOST = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH and that of an address
_REMEDIES = {
    _EXPIRED: "Renew the broker's certificate (or set this machine's clock)",
    _NOT_YET_VALID: "Set this machine's clock, or renew the broker's certificate",
    **dict.fromkeys(_NO_ISSUER, "Name the authority that signed it in ssl.ca.location"),
    **dict.fromkeys(
        _WRONG_HOST,
        "Let bootstrap_servers and advertised.listeners use a name that is in it; or, where who signed it is enough, "
        "set ssl.endpoint.identification.algorithm to none",
    ),
}
_TLS_ALERT = re.compile(r"Invalid frame length: 3525(17|18|19|20)\d{3}\b")  # the bytes 21, 3, n: an alert of TLS


class HandshakeRefused(kafka_errors.KafkaError):  # type: ignore[misc]  # untyped base
    """A broker was reached, and it or we won't talk. Trying again doesn't help."""

    retriable = False

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def as_error(self, alias: str) -> NotLetIn:
        """In drkit's words."""
        return NotLetIn(f"cluster {alias}: {self.what}", remedy=self.remedy)


class _ClosingTls(ssl.SSLSocket):
    """kafka-python leaves the socket of a failed handshake to the garbage collector; this closes it."""

    def do_handshake(self, block: bool = False) -> None:
        """As usual."""
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except BaseException:
            self.close()
            raise


class Manager(KafkaConnectionManager):  # type: ignore[misc]  # untyped base
    """Connections of one client. `trouble`: why the last connection failed, or None."""

    def __init__(self, net: Any, **options: Any) -> None:
        super().__init__(net, **options)
        context: ssl.SSLContext | None = options.get("ssl_context")
        if context is not None:
            context.sslsocket_class = _ClosingTls
        self.trouble: Exception | None = None
        self._refused: dict[Any, Exception] = {}

    def maybe_raise_auth_failure(self, node_id: Any) -> None:
        """Called by the library before each connection: stop where trying again can't help.

        While it looks for a first broker, that is so only when all that are configured refused.
        """
        refusal = self._refused.get(node_id)
        if refusal is not None:
            first = [broker.node_id for broker in self.cluster.bootstrap_brokers()]
            if node_id not in first or all(each in self._refused for each in first):
                raise refusal

    async def _connect(self, node: Any, conn: Any, **options: Any) -> None:
        """As the library does, then keep why it failed."""
        await super()._connect(node, conn, **options)
        future = conn.init_future
        if not future.is_done or future.succeeded():
            return
        error: Exception = future.exception
        refusal = _refusal(f"{node.host}:{node.port}", error, self.config["sasl_mechanism"])
        self.trouble = error if refusal is None else refusal
        if refusal is not None:
            self._refused[node.node_id] = refusal

    async def _build_transport(self, node: Any, **options: Any) -> Any:
        """As the library does, but what a broker sends just before it hangs up is read.

        The library drops it, and with it the reason why a log-in failed.
        """
        transport = await super()._build_transport(node, **options)
        receive: Callable[[], tuple[bytes, Exception | None]] = transport._sock_recv  # noqa: SLF001 - no public name

        def data_first() -> tuple[bytes, Exception | None]:
            data, error = receive()
            return data, None if data else error  # the end is met again at the next read

        transport._sock_recv = data_first  # noqa: SLF001 - as above
        return transport


def _refusal(broker: str, error: Exception, mechanism: str | None) -> Exception | None:
    """The error to raise where it can't get better by itself; else None."""
    if isinstance(error, DrkitError):
        return None if isinstance(error, Unreachable) else error
    if isinstance(error, kafka_errors.UnsupportedSaslMechanismError):
        return HandshakeRefused(
            f"broker {broker} doesn't offer {mechanism} there",
            "Name one of the listener's sasl.enabled.mechanisms in sasl.mechanisms",
        )
    credentials: tuple[type[Exception], ...]
    credentials = (kafka_errors.SaslAuthenticationFailedError, kafka_errors.IllegalSaslStateError)
    if isinstance(error, credentials):
        return error
    if _TLS_ALERT.search(str(error)):
        return HandshakeRefused(
            f"broker {broker} speaks TLS, and security.protocol doesn't", "Set security.protocol to SSL or SASL_SSL"
        )
    causes = [each for each in (error.__context__, *error.args) if isinstance(each, ssl.SSLError)]
    return _tls_refusal(broker, causes[0]) if causes else None


def _tls_refusal(broker: str, error: ssl.SSLError) -> HandshakeRefused | None:
    if isinstance(error, ssl.SSLCertVerificationError):
        return HandshakeRefused(
            f"the certificate of broker {broker} can't be trusted: {error.verify_message}",
            _REMEDIES.get(error.verify_code, "Mend that certificate, or ssl.ca.location"),
        )
    reason = (error.reason or "").replace("_", " ").lower()
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return HandshakeRefused(
            f"broker {broker} refused this client's certificate ({reason})",
            "Check ssl.certificate.location and ssl.key.location, and that the broker trusts who signed it",
        )
    if "wrong version number" in reason:
        return HandshakeRefused(
            f"broker {broker} doesn't speak TLS there, and security.protocol does",
            "Mend bootstrap_servers or security.protocol",
        )
    return None  # a broker that hangs up may be starting, or stopping
