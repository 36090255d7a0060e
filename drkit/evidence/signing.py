"""Ed25519 keys and DSSE envelopes: signing with a key file or a command. drkit never prints a private key."""

from __future__ import annotations

import base64
import binascii
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import platformdirs
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drkit.config.schema.config import EvidenceConfig
from drkit.evidence import verifier
from drkit.model.errors import ConfigError, DrkitError, Refused

_SIGNATURE_BYTES = 64
OPENSSL = "openssl genpkey -algorithm ed25519 -out FILE"


class Signer(Protocol):
    """Signs; `public_pem` is the public key in PEM form."""

    @property
    def public_pem(self) -> bytes:
        """The public key, in PEM form."""
        ...

    def sign(self, message: bytes) -> bytes:
        """The Ed25519 signature of a message: 64 bytes."""
        ...


@dataclass(frozen=True, slots=True)
class KeySigner:
    """Signs with a private key."""

    key: Ed25519PrivateKey
    public_pem: bytes

    def sign(self, message: bytes) -> bytes:
        """The signature."""
        return self.key.sign(message)


@dataclass(frozen=True, slots=True)
class CommandSigner:
    """Signs with a command: the message on stdin, the signature on stdout, raw or in base64."""

    command: tuple[str, ...]
    public_pem: bytes
    timeout_seconds: float

    def sign(self, message: bytes) -> bytes:
        """The signature.

        Raises:
            DrkitError: the command can't be run, fails, or writes no signature.
        """
        name = self.command[0]
        try:
            done = subprocess.run(
                self.command, input=message, capture_output=True, timeout=self.timeout_seconds, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise DrkitError(
                f"the sign_command {name} did not sign: {error}", remedy="Run it by hand; see docs/evidence.md"
            ) from error
        signature = done.stdout
        if len(signature) != _SIGNATURE_BYTES:
            try:
                signature = base64.b64decode(signature.strip(), validate=True)
            except binascii.Error:
                signature = b""
        if done.returncode != 0 or len(signature) != _SIGNATURE_BYTES:
            said = done.stderr.decode(errors="replace").strip()[-300:]
            raise DrkitError(
                f"{name} (sign_command) wrote no Ed25519 signature; exit code {done.returncode}: {said or 'no output'}",
                meaning=f"It must write {_SIGNATURE_BYTES} bytes, or their base64, to stdout",
                remedy="Run it by hand; see docs/evidence.md",
            )
        return signature


def default_key() -> Path:
    """The key that drkit uses if none is configured, and creates at first use."""
    return platformdirs.user_state_path("drkit") / "evidence.key"


def make_key(file: Path) -> Path:
    """Create a key pair: `file` (mode 0600), and the public key beside it with the suffix `.pub`, which is returned.

    Raises:
        Refused: one of the two files exists.
        DrkitError: they can't be written.
    """
    public = file.with_name(f"{file.name}.pub")
    key = Ed25519PrivateKey.generate()
    private_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    made: list[Path] = []
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for path, content, mode in ((public, public_pem_of(key), 0o644), (file, private_pem, 0o600)):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            made.append(path)
            with os.fdopen(handle, "wb") as stream:
                os.fchmod(stream.fileno(), mode)  # regardless of the umask: the public key is for everybody
                stream.write(content)
        made.clear()
    except FileExistsError as error:
        raise Refused(
            f"{error.filename} exists",
            meaning="drkit doesn't replace a key: nobody could verify the evidence that it signed",
            remedy="Give another --out",
        ) from None
    except OSError as error:
        raise DrkitError(f"{file} can't be written: {error.strerror or error}", remedy="Give another --out") from error
    finally:
        for path in made:  # half a pair is useless
            path.unlink(missing_ok=True)
    return public


def public_pem_of(key: Ed25519PrivateKey) -> bytes:
    """The public key of a private key, in PEM form."""
    return key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def open_signer(config: EvidenceConfig, key: Path | None = None) -> tuple[Signer, Path | None]:
    """The signer: `key` (a flag), else as configured, else the default key; and the key's file if it is new.

    Raises:
        ConfigError: there is no such key, or it is not an Ed25519 key.
    """
    if key is None and config.sign_command is not None and config.public_key is not None:
        public = _read(config.public_key, "evidence.public_key")
        try:
            verifier.public_key(public)
        except verifier.Broken as error:
            raise ConfigError(
                f"evidence.public_key: {config.public_key}: {error}", remedy="Give its PEM file"
            ) from None
        return CommandSigner(config.sign_command, public, config.timeout_seconds), None
    file, made = key or config.key, None
    if file is None:
        file = default_key()
        if not file.exists():
            make_key(file)
            made = file
    try:
        found = serialization.load_pem_private_key(_read(file, "the key of evidence"), None)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file} is not a usable private key: {error}", remedy=OPENSSL) from None
    if not isinstance(found, Ed25519PrivateKey):
        raise ConfigError(f"{file} is not an Ed25519 key", remedy=f"drkit evidence key --out FILE, or {OPENSSL}")
    return KeySigner(found, public_pem_of(found)), made


def envelope_of(statement: bytes, signer: Signer) -> bytes:
    """The DSSE envelope of a statement, in the only form that the verifier accepts."""
    _, keyid = verifier.public_key(signer.public_pem)
    signature = signer.sign(verifier.preauthentication(statement))
    document: Mapping[str, Any] = {
        "payload": base64.b64encode(statement).decode(),
        "payloadType": verifier.PAYLOAD_TYPE,
        "signatures": [{"keyid": keyid, "sig": base64.b64encode(signature).decode()}],
    }
    return verifier.canonical(document)


def _read(file: Path, what: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{what}: {file} can't be read: {error.strerror or error}",
            remedy=f"drkit evidence key --out {file} makes one; so does {OPENSSL}",
        ) from None
