"""Signed approvals of plans, for `[approvals]`: a DSSE envelope like a bundle's, with another statement."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature

from drkit.evidence import verifier
from drkit.evidence.signing import Signer, envelope_of
from drkit.model.clock import iso
from drkit.model.errors import ConfigError, Refused
from drkit.model.runs import Approval

TYPE = "https://drkit.dev/approval/v1"
_SKEW = timedelta(minutes=5)
_NEEDED = 2


def approval_of(
    digest: str, flags: Iterable[str], signer: Signer, at: datetime, valid: timedelta
) -> tuple[bytes, dict[str, Any]]:
    """The signed approval of a plan, and its content."""
    _, keyid = verifier.public_key(signer.public_pem)
    said = {
        "_type": TYPE,
        "digest": digest,
        "allows": sorted(flags),
        "at": iso(at),
        "until": iso(at + valid),
    }
    return envelope_of(verifier.canonical(said), signer), said | {"key": keyid}


def read_approvals(files: Sequence[Path], operators: Mapping[str, Path], at: datetime) -> Approval:
    """The approval that these files give together.

    Args:
        files: the output files of `drkit evidence approve`.
        operators: the public key of each, by name.
        at: now.

    Raises:
        ConfigError: a file or key can't be read.
        Refused: a signature is invalid, expired or not an operator's, or fewer than two operators signed.
    """
    names = _names(operators)
    found = {}
    for file in files:
        name, said = _read(file, names)
        since, until = datetime.fromisoformat(said["at"]), datetime.fromisoformat(said["until"])
        if not since - _SKEW <= at <= until:
            raise Refused(
                f"{file}: the approval of {name} is valid from {said['at']} to {said['until']}",
                meaning=f"It is {iso(at)} now. Nothing was changed",
                remedy=f"Have {name} approve it again",
            )
        found[name] = said
    if len(found) < _NEEDED:
        who = f"only {next(iter(found))}" if found else "nobody"
        raise Refused(
            f"two operators must approve: {who} did",
            meaning="[approvals] requires the signatures of two operators. Nothing was changed",
            remedy=f"Give an --approval FILE of each of two of: {', '.join(sorted(operators))}",
        )
    digests = {said["digest"] for said in found.values()}
    if len(digests) > 1:
        raise Refused(
            f"{' and '.join(found)} approved different plans",
            meaning="Nothing was changed",
            remedy="Have all of them approve the same digest; --dry-run shows it",
        )
    allows = frozenset.intersection(*(frozenset(said["allows"]) for said in found.values()))
    return Approval(digests.pop(), tuple(found), allows)


def _names(operators: Mapping[str, Path]) -> dict[str, tuple[str, Any]]:
    """Operator and public key by key id.

    Raises:
        ConfigError: a key can't be read, or two operators have the same.
    """
    names: dict[str, tuple[str, Any]] = {}
    for name, file in operators.items():
        try:
            key, keyid = verifier.public_key(file.read_bytes())
        except (OSError, verifier.Broken) as error:
            raise ConfigError(
                f"approvals.operators.{name}: {file}: {error}", remedy="Give the public key (PEM) of an Ed25519 key"
            ) from None
        if keyid in names:
            raise ConfigError(
                f"approvals.operators: {names[keyid][0]} and {name} have the same key",
                remedy="Give each their own key: drkit evidence key --out FILE",
            )
        names[keyid] = name, key
    return names


def _read(file: Path, names: Mapping[str, tuple[str, Any]]) -> tuple[str, dict[str, Any]]:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"--approval: {file} can't be read: {error.strerror or error}", remedy="Name a file"
        ) from None
    try:
        envelope = json.loads(raw)
        (signature,) = envelope["signatures"]
        body = base64.b64decode(envelope["payload"], validate=True)
        name, key = names.get(signature["keyid"], ("", None))
        if key is not None:
            key.verify(base64.b64decode(signature["sig"], validate=True), verifier.preauthentication(body))
        said = _statement(body)
    except (ValueError, KeyError, TypeError, InvalidSignature, RecursionError) as error:
        why = "its signature is invalid" if isinstance(error, InvalidSignature) else f"it is damaged ({error})"
        raise Refused(
            f"{file} is not a valid approval: {why}", meaning="Nothing was changed", remedy="Have it approved again"
        ) from None
    if key is None:
        raise Refused(
            f"{file} is signed by key {signature['keyid'][:16]}…, which is not an operator's",
            meaning="[approvals] names the operators and their keys. Nothing was changed",
            remedy=f"Have two of these approve: {', '.join(sorted(each for each, _ in names.values()))}",
        )
    return name, said


def _statement(body: bytes) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(body)
    if said["_type"] != TYPE or not all(isinstance(said[each], str) for each in ("digest", "at", "until")):
        raise ValueError("it is not an approval")
    if any(datetime.fromisoformat(said[each]).tzinfo is None for each in ("at", "until")):
        raise ValueError("its times have no time zone")
    return said | {"allows": [str(each) for each in said["allows"]]}
