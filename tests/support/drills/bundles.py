"""Tampers with bundles of evidence."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from drkit.evidence import verifier
from drkit.evidence.signing import Signer, envelope_of

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def change_a_byte(path: Path, place: float) -> Iterator[str]:
    """Flip one bit of one byte during the block; `place`: from 0 (the first byte) to 1 (the last)."""
    content = path.read_bytes()
    number = min(len(content) - 1, int(place * len(content)))
    path.write_bytes(content[:number] + bytes([content[number] ^ 1]) + content[number + 1 :])
    try:
        yield f"{path.name}, byte {number} of {len(content)}"
    finally:
        path.write_bytes(content)


def problems_of(bundle: Path, copy: Path, signer: Signer, change: Callable[[Path], object]) -> list[str]:
    """The verifier's result for a changed copy that was signed again with the key."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(bundle, copy)
    change(copy)
    sign_again(copy, signer)
    return verifier.verify(copy, signer.public_pem).problems


def sign_again(folder: Path, signer: Signer) -> None:
    """A statement for the current content of the folder: its digests, and the fields from evidence.json."""
    evidence = json.loads((folder / "evidence.json").read_bytes())
    page = (folder / "report.html").read_text()
    was = page.rpartition("SHA-256 <code>")[2][:64]
    (folder / "report.html").write_text(page.replace(was, verifier.digest_of(folder / "evidence.json")))
    statement = {
        "_type": verifier.STATEMENT_TYPE,
        "predicateType": verifier.PREDICATE_TYPE,
        "predicate": {name: evidence[name] for name in ("run", "kind", "verdict")},
        "subject": [
            {
                "name": path.relative_to(folder).as_posix(),
                "digest": {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
            }
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name != verifier.ENVELOPE
        ],
    }
    (folder / verifier.ENVELOPE).write_bytes(envelope_of(json.dumps(statement).encode(), signer))


def document_of(bundle: Path) -> dict[str, Any]:
    """A bundle's evidence.json, valid by its schema; every null at the top has its reason."""
    document: dict[str, Any] = json.loads((bundle / "evidence.json").read_text())
    schema = json.loads((ROOT / "docs" / "schemas" / "evidence-bundle.schema.json").read_text())
    Draft202012Validator(schema).validate(document)
    own_reasons = (
        "checks",
        "objectives",
        "steps",
        "timeline",
        "trend",
        "unknown",
    )  # what stands in them says it itself
    for pointer in nulls({name: value for name, value in document.items() if name not in own_reasons or value is None}):
        assert pointer in document["unknown"], pointer
    return document


def nulls(value: object, pointer: str = "") -> Iterator[str]:
    """JSON pointers of all nulls."""
    if value is None:
        yield pointer
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from nulls(each, f"{pointer}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from nulls(each, f"{pointer}/{number}")


def chained(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Entries with every hash computed again, as after tampering."""
    before, found = "0" * 64, []
    for number, row in enumerate(rows):
        entry = {**row, "seq": number, "previous": before}
        names = ("run", "seq", "at", "stage", "event", "previous", "payload_text")
        before = hashlib.sha256("\n".join(str(entry[name]) for name in names).encode()).hexdigest()
        found.append({**entry, "hash": before})
    return found
