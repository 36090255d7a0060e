"""A token endpoint on loopback (client credentials, over TLS) and a broker's listener that accepts its tokens.

The tokens are JWTs signed with RS256; the broker checks them like an identity provider's, with the public key from a
file.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.clusters.tls import Pem

AUDIENCE = "kafka"
CLIENT, SECRET = "mirror", "clientsecret/+"
"""The client's id, which is the user's name on the broker."""


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs tokens. `folder`: for the public key, in the brokers' form."""

    def __init__(self, folder: Path) -> None:
        self._key = generate_private_key(65537, 2048)
        numbers = self._key.public_key().public_numbers()
        n, e = (_text(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.n, numbers.e))
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [{"kty": "RSA", "kid": "one", "alg": "RS256", "n": n, "e": e}]}))

    def token(self, subject: str, life_seconds: float) -> str:
        now = time.time()
        claims = {"sub": subject, "aud": AUDIENCE, "iat": int(now), "exp": int(now + life_seconds), "scope": "kafka"}
        parts = [json.dumps(part).encode() for part in ({"alg": "RS256", "kid": "one", "typ": "JWT"}, claims)]
        signed = ".".join(_text(part) for part in parts)
        return f"{signed}.{_text(self._key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    def listener(self) -> dict[str, str]:
        """A lab's listener (`Lab.up`) with SASL/OAUTHBEARER."""
        package = "org.apache.kafka.common.security.oauthbearer"
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            "oauthbearer.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }


class Endpoint:
    """A running endpoint: its address, its requests, its tokens, and its answers."""

    def __init__(self, issuer: Issuer) -> None:
        self.issuer = issuer
        self.url = ""
        self.asked: list[dict[str, str]] = []
        self.issued: list[str] = []
        self.life_seconds = 3600.0
        self.answer: tuple[int, dict[str, Any]] | None = None
        """Status and document, instead of a token."""

    def reply(self, form: dict[str, str], login: str | None) -> tuple[int, dict[str, Any]]:
        self.asked.append(form)
        if self.answer is not None:
            return self.answer
        expected = f"{urllib.parse.quote_plus(CLIENT)}:{urllib.parse.quote_plus(SECRET)}"
        known = {f"Basic {base64.b64encode(text.encode()).decode()}" for text in (expected, f"{CLIENT}:{SECRET}")}
        if login not in known or form.get("grant_type") != "client_credentials":
            return 401, {"error": "invalid_client", "error_description": "no such client"}
        token = self.issuer.token(CLIENT, self.life_seconds)
        self.issued.append(token)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.life_seconds}


@contextmanager
def token_endpoint(issuer: Issuer, pem: Pem | None) -> Iterator[Endpoint]:
    """Serve tokens on a loopback port; over TLS if there are certificates."""
    endpoint = Endpoint(issuer)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, document = endpoint.reply(dict(urllib.parse.parse_qsl(body)), self.headers["Authorization"])
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            """Ignore clients that hang up: they are part of the tests."""

    server = Server(("127.0.0.1", 0), Handler)
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem.certificate("broker"), pem.key("broker"))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    endpoint.url = f"{'http' if pem is None else 'https'}://127.0.0.1:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="test-tokens")
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
