"""Writes a bundle: the folder and its signed statement. A new export of the same run updates the folder."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from drkit.evidence import verifier
from drkit.evidence.report import render_report
from drkit.evidence.run_evidence import BundleContent
from drkit.evidence.signing import Signer, envelope_of
from drkit.model.clock import iso, now
from drkit.model.errors import DrkitError, Refused

_SUBFOLDERS = ("journal", "history")


@dataclass(frozen=True, slots=True)
class WrittenBundle:
    """A written bundle. `changed`: False if the folder already held the same."""

    document: dict[str, Any]
    digests: dict[str, str]
    sizes: dict[str, int]
    changed: bool


def write_bundle(folder: Path, content: BundleContent, signer: Signer) -> WrittenBundle:
    """Write and sign. Files have mode 0600, folders 0700; the signature comes last.

    Raises:
        Refused: the folder holds other files.
        DrkitError: it can't be written, or the signer fails.
    """
    run = str(content.document["run"])
    exported_before = _own_bundle(folder, run)
    exported_at = exported_before or iso(now()) or ""
    files = _files(content, exported_at, signer)
    changed = not _is_unchanged(folder, files)
    if changed and exported_before is not None:
        files = _files(content, iso(now()) or "", signer)
    if changed:
        try:
            _write(folder, files)
        except OSError as error:
            raise DrkitError(
                f"{folder} can't be written: {error.strerror or error}",
                meaning="The files there are not signed, so nobody can mistake them for a bundle",
                remedy="Free some space or correct permissions, and export again",
            ) from error
    shown = {name: content for name, content in files.items() if name != verifier.ENVELOPE}
    return WrittenBundle(
        document=json.loads(files[verifier.EVIDENCE]),
        digests={name: sha256(content).hexdigest() for name, content in shown.items()},
        sizes={name: len(content) for name, content in shown.items()},
        changed=changed,
    )


def _files(content: BundleContent, exported_at: str, signer: Signer) -> dict[str, bytes]:
    """Every file of the bundle by name, the envelope last."""
    document = {"format": verifier.FORMAT, "exported_at": exported_at, **content.document}
    evidence = (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()
    page = render_report(document, sha256(evidence).hexdigest()).encode()
    files = {
        verifier.EVIDENCE: evidence,
        verifier.REPORT: page,
        **content.files,
        verifier.PUBLIC_KEY: signer.public_pem,
    }
    statement = {
        "_type": verifier.STATEMENT_TYPE,
        "subject": [
            {"name": name, "digest": {"sha256": sha256(content).hexdigest()}} for name, content in sorted(files.items())
        ],
        "predicateType": verifier.PREDICATE_TYPE,
        "predicate": {name: document[name] for name in ("run", "kind", "verdict", "exported_at", "drkit")},
    }
    files[verifier.ENVELOPE] = envelope_of(json.dumps(statement, sort_keys=True).encode(), signer)
    return files


def _own_bundle(folder: Path, run: str) -> str | None:
    """The export time of this run's bundle in the folder; None: the folder is empty or doesn't exist."""
    try:
        present = _names(folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(
            f"{folder} can't be used: {error.strerror or error}", remedy="Give another --out: a new or empty folder"
        ) from error
    if not present:
        return None
    try:
        document: Mapping[str, Any] = json.loads((folder / verifier.EVIDENCE).read_text(encoding="utf-8"))
        mine = document["format"] == verifier.FORMAT and document["run"] == run
        exported_at, signed = str(document["exported_at"]), verifier.ENVELOPE in present
    except (OSError, ValueError, KeyError, TypeError):
        mine, exported_at, signed = False, "", False
    if not mine:
        raise Refused(
            f"{folder} is not empty, and not a bundle of {run}",
            meaning="Nothing was written: the bundle would be mixed with other files",
            remedy="Give another --out: a new or empty folder",
        )
    if signed and (unsigned := present - _signed(folder) - {verifier.ENVELOPE}):
        raise Refused(
            f"{folder} holds {', '.join(sorted(unsigned)[:5])}, which is not part of the bundle of {run}",
            remedy="Move it away, or give another --out",
        )
    return exported_at


def _names(folder: Path) -> set[str]:
    if not folder.is_dir() and folder.exists():
        raise NotADirectoryError(20, "it is not a folder")
    if not folder.exists():
        raise FileNotFoundError
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def _signed(folder: Path) -> set[str]:
    """The files that the folder's statement names, unverified: only used to see which may be replaced."""
    try:
        statement, _ = verifier.check_signature(folder, None)
        return {subject["name"] for subject in statement["subject"]}
    except (verifier.Broken, KeyError, TypeError, ValueError) as error:
        raise Refused(
            f"the bundle in {folder} was changed since it was signed: {error}",
            meaning="Somebody may be investigating it, so drkit doesn't overwrite it",
            remedy="Give another --out",
        ) from None


def _is_unchanged(folder: Path, files: Mapping[str, bytes]) -> bool:
    """Whether the folder holds exactly these files."""
    try:
        return _names(folder) == files.keys() and all((folder / n).read_bytes() == c for n, c in files.items())
    except OSError:
        return False


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    for name in _names(folder):
        (folder / name).unlink()
    for name in _SUBFOLDERS:
        if any(each.startswith(f"{name}/") for each in files):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
    for name, content in files.items():  # evidence.json first: it names the folder's run
        handle = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
