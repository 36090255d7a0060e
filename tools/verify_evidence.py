#!/usr/bin/env python3
"""Verify an evidence bundle of drkit, without drkit: python3 verify_evidence.py DIR [--key KEY.pub] [--anchors FILE]

Needs only the standard library and `cryptography`. It is one file, so that you can pass it on. It checks:

1. statement.dsse.json is a DSSE envelope (payload type in-toto) with one valid Ed25519 signature.
2. The in-toto statement names every file of the folder with its SHA-256, and no file is missing, added or changed.
   The folder has all files of a bundle of its kind, and no other.
3. Each journal is a hash chain without gaps that contains every head that was anchored elsewhere.
   No anchored run is missing from the list of runs; no drill is missing from the chain of drills, and the chain has
   the digest of every kept file of this drill, including the journals of its runs.
4. The verdicts, computed again: a run's from its journal, a drill's from what its clients recorded.
5. Everything else in evidence.json and a drill's result.json that follows from these files, computed again:
   docs/evidence.md lists, field by field, what does and what rests on the signature.

Exit code 0: the bundle is what was signed, and its verdicts follow from its raw data. 1: it is refused; each line says
why. 2: usage. Without --key the signature is checked against the key in the bundle, which shows that nothing was
changed since, not who signed: get the public key from another source. Without --anchors the heads of journals are those
in the bundle, which the owner of the key may have forged. FILE is the operator's file of anchors, or the records of the
topic __drkit_journal, one line each: get it from another source, too.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

FORMAT = "drkit-evidence/1"
ENVELOPE, EVIDENCE, PUBLIC_KEY, REPORT = "statement.dsse.json", "evidence.json", "public-key.pem", "report.html"
ANCHORS, RUNS, DRILLS, DRILL_ANCHORS = "anchors.json", "runs.jsonl", "drills.jsonl", "drill-anchors.json"
HISTORY = ("attempts", "polls", "positions", "landed", "lag")
DRILL_FILES = (
    *("result.json", "experiment.yaml", "experiment.json", "origin.json", ANCHORS, RUNS, "history/history.json"),
    *(f"history/{part}.jsonl" for part in HISTORY),
)
"""The kept files of every drill, besides the journals of its runs. The chain of drills has their digests."""
LINK_HISTORY = (
    *("source", "target", "disaster_at", "moved", "incomplete"),
    *("stated", "ends", "returned", "stated_loss"),
)
SITE_LISTS = ("stages", "groups", "without_place", "lost_by_topic", "places", "directories")
"""What the document of a failover of several links lists over all of them; each row names its link."""
STATED = (("partition", "partition"), ("offset", "target_offset"), ("reread_at_most", "reread_at_most"))
"""The columns of a stated position, and the members of a failover's document that they are from."""
DEFAULT_LINK = "primary->dr"
"""The link of a drill whose experiment names none; descriptions leave it out."""
MIRROR_LAG = "the mirror's lag"
OBJECTIVES = ("rpo_records", "rpo_seconds", "rto_seconds")
NODE_FAULTS = ("kill", "pause", "resume", "restart", "fill_disk", "disconnect")
DATA_FAULTS = ("delete_topic", "recreate_topic", "purge_topic", "lose_tail", "corrupt_batch")
"""Faults that remove data from the workload's topic."""
TOPIC_FAULTS = (*DATA_FAULTS, "add_partitions", "write_foreign", "flood")
NETWORK_FAULTS = ("degrade_network", "partition_network", "reset_network", "heal_network")
APPLICATION_FAULTS = (
    *("expire_credentials", "renew_credentials", "expire_certificate", "renew_certificate"),
    *("skew_clock", "correct_clock"),
)
CLUSTER_FAULTS = (*TOPIC_FAULTS, *APPLICATION_FAULTS, *NETWORK_FAULTS)
DISASTERS = ("kill", "pause", "restart", "fill_disk", "expire_credentials", "expire_certificate", *DATA_FAULTS)
"""Faults that count as a disaster: RPO and RTO count from the first one on a link's source."""
MOVED_CHECKS = ("skipped_by_group", "both_sides_written", "reread_beyond_plan", "loss_beyond_plan")
"""Checks of clients that move to the target."""
DISTURBANCES = (*NODE_FAULTS, *CLUSTER_FAULTS, "failover", "failback")
CLOCKS, CLOCK_SET = 0.002, 2.0
"""In seconds: how much two readings of one clock may differ (some are rounded to the millisecond); and how much a
drill's duration may differ between the monotonic and the wall clock before the latter counts as set."""
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:drkit:evidence:v1"
SHOWN, MOST_DIFFERENCES = 160, 20
RUN_NAME, KEY_ID = re.compile(r"[A-Za-z0-9-]+"), re.compile(r"[0-9a-f]{64}")
NOT_ENDED = "no outcome is recorded"
Row = dict[str, Any]
Anomaly = tuple[str, Row, str]
"""The record's cluster, its row, and what is wrong, in words."""


class Broken(Exception):
    """The bundle is refused; the arguments are sentences."""


@dataclass
class Verified:
    """The result. `problems` is empty if the bundle is valid; `notes` say what it can't show."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    run: str | None = None
    kind: str | None = None
    verdict: str | None = None
    key: str | None = None
    shown: list[str] = field(default_factory=list)
    """The run, the export and the chains: they reveal a replay of an older bundle or of a shorter chain."""


def verify(
    folder: Path, trusted: bytes | None = None, *, own_key: bool = False, anchors: list[Row] | None = None
) -> Verified:
    """Verify a bundle.

    `trusted`: the PEM of the public key that must have signed it; `own_key`: it is a file of the bundle. `anchors`:
    anchored heads, read from where the signer can't write (`read_anchors`). The sentences never hold control
    characters, even if the bundle does.
    """
    found = Verified()
    try:
        statement, found.key = check_signature(folder, trusted)
        check_files(folder, statement)
        if trusted is None or own_key:
            found.notes.append("The signer is not checked: the key is the bundle's own (give --key)")
        evidence, predicate = _json(folder, EVIDENCE), statement["predicate"]
        check_names(evidence)
        found.run, found.kind, found.verdict = (evidence[name] for name in ("run", "kind", "verdict"))
        for name in sorted({"run", "kind", "verdict", *predicate}):
            if not _same(evidence.get(name), predicate.get(name)):
                said, signed = (_short(each.get(name)) for each in (evidence, predicate))
                found.problems.append(f"{EVIDENCE} says {name} {said}, the statement {signed}")
        found.shown += [f"it began {evidence['started_at']} and was exported {evidence['exported_at']}"]
        check_contents(folder, evidence)
        found.problems += check_report(folder)
        if found.kind == "drill":
            found.problems += check_drills(folder, evidence, found.notes)
        confirmed: dict[str, int] = {}
        found.problems += check_journals(folder, evidence, found.notes, confirmed)
        if anchors is None:
            found.notes.append("The anchors are the bundle's own: the owner of the key can forge them (give --anchors)")
        else:
            confirmed.clear()
            found.problems += check_outside(folder, evidence, anchors, found.notes, confirmed)
        chains = [*evidence["journals"], *([evidence["drills"] | {"run": "drills"}] if found.kind == "drill" else ())]
        found.shown += [
            f"the chain of {each['run']} ends at entry {each['entries'] - 1}, {each['head']}" for each in chains
        ]
        if found.kind == "drill":
            found.problems += check_drill(folder, evidence, found.notes)
        else:
            entries = _lines(folder, journal_of(found.run))
            computed = run_judgement(entries)
            found.problems += check_identity(folder, evidence)
            found.problems += check_tail(entries, confirmed.get(found.run or ""), computed["verdict"], found.notes)
            found.problems += compare(evidence, computed)
            found.problems += check_findings(evidence, computed, ())
        found.problems += check_unknown(evidence)
    except Broken as broken:
        found.problems += [str(sentence) for sentence in broken.args]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        found.problems.append(f"The bundle can't be read: {type(error).__name__}: {error}")
    found.problems, found.notes, found.shown = (
        [printable(text) for text in texts] for texts in (found.problems, found.notes, found.shown)
    )
    return found


def check_names(evidence: Row) -> None:
    """Names and verdicts have the form in which drkit writes them."""
    if evidence["format"] != FORMAT:
        raise Broken(f"{EVIDENCE} has the format {_short(evidence['format'])}; this verifier supports {FORMAT}")
    if evidence["kind"] not in {*PATHS, "drill"} or evidence["verdict"] not in {"passed", "failed", "unknown"}:
        raise Broken(f"{EVIDENCE} has no kind and verdict of drkit: {_short([evidence['kind'], evidence['verdict']])}")
    for run in (evidence["run"], *(said["run"] for said in evidence["journals"])):
        if not RUN_NAME.fullmatch(run):
            raise Broken(f"{_short(run)} is not the name of a run")


def check_contents(folder: Path, evidence: Row) -> None:
    """The bundle has exactly the files of its kind: nothing is signed that no check reads."""
    here = {path.relative_to(folder).as_posix() for path in _all_paths(folder) if path.is_file()}
    wanted = {ENVELOPE, EVIDENCE, PUBLIC_KEY, REPORT, ANCHORS, RUNS}
    if evidence["runbook"] is not None:
        wanted.add(evidence["runbook"]["file"])
    if evidence["kind"] == "drill":
        wanted |= {DRILLS, DRILL_ANCHORS, *DRILL_FILES}
        wanted |= {name for name in here if name == journal_of(Path(name).stem) and RUN_NAME.fullmatch(Path(name).stem)}
    else:
        wanted |= {journal_of(evidence["run"]), "plan.json"}
        wanted |= {"result.json"} if evidence["what"]["result"] is not None else set()
    problems = [f"{name} is missing: every bundle of its kind has it" for name in sorted(wanted - here)]
    problems += [f"{name} is not a file of a bundle of its kind" for name in sorted(here - wanted)]
    if problems:
        raise Broken(*problems)


def check_unknown(evidence: Row) -> Iterator[str]:
    """Every value with a reason why it is not known is null."""
    for pointer in evidence["unknown"]:
        value: Any = evidence
        for part in pointer.split("/")[1:]:
            value = value[int(part)] if isinstance(value, list) else value[part.replace("~1", "/").replace("~0", "~")]
        if value is not None:
            yield f"{EVIDENCE} says why {_short(pointer)} is not known, but its value is {_short(value)}"


def printable(text: str) -> str:
    """Text that is safe for a terminal: other characters are escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


# -- 1 and 2: signature and digests ----------------------------------------------------------------------------------


def canonical(document: Any) -> bytes:
    """The only accepted form of the envelope: any other byte, even a space, is detected."""
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def preauthentication(body: bytes) -> bytes:
    """The message that DSSE signs: the type and the body, each with its length."""
    kind = PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)


def public_key(pem: bytes) -> tuple[Ed25519PublicKey, str]:
    """A public key and its id: the SHA-256 of its DER form."""
    try:
        key = serialization.load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Broken(f"The public key can't be read: {error}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise Broken("The public key is not an Ed25519 key")
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key, hashlib.sha256(der).hexdigest()


def check_signature(folder: Path, trusted: bytes | None) -> tuple[Row, str]:
    """The signed statement, and the id of the key that signed it."""
    if not (folder / ENVELOPE).is_file():
        raise Broken(f"{ENVELOPE} is missing: nothing of this folder is signed")
    raw = (folder / ENVELOPE).read_bytes()
    try:
        envelope = _load(raw.decode())
        (signature,) = envelope["signatures"]
        body = base64.b64decode(envelope["payload"], validate=True)
        signed = base64.b64decode(signature["sig"], validate=True)
        again = {
            "payload": base64.b64encode(body).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": signature["keyid"], "sig": base64.b64encode(signed).decode()}],
        }
    except (ValueError, KeyError, TypeError) as error:
        raise Broken(f"{ENVELOPE} is not a DSSE envelope: {type(error).__name__}: {error}") from None
    if not KEY_ID.fullmatch(signature["keyid"]):
        raise Broken(f"{ENVELOPE} is not a DSSE envelope of drkit: its keyid is not a SHA-256")
    if canonical(again) != raw:
        raise Broken(f"{ENVELOPE} was changed: it doesn't have the form in which drkit signs it")
    if not (folder / PUBLIC_KEY).is_file() and trusted is None:
        raise Broken(f"{PUBLIC_KEY} is missing")
    key, keyid = public_key(trusted if trusted is not None else (folder / PUBLIC_KEY).read_bytes())
    if signature["keyid"] != keyid:
        raise Broken(f"{ENVELOPE} is signed by key {signature['keyid']}, not by the given key {keyid}")
    try:
        key.verify(signed, preauthentication(body))
    except InvalidSignature:
        raise Broken(f"The signature is invalid: {ENVELOPE} was changed, or another key signed it") from None
    statement = _load(body.decode())
    if statement.get("_type") != STATEMENT_TYPE or statement.get("predicateType") != PREDICATE_TYPE:
        raise Broken(f"The statement is not an in-toto statement (v1) of {PREDICATE_TYPE}")
    return statement, keyid


def check_files(folder: Path, statement: Row) -> None:
    """The folder has exactly the signed files, byte for byte."""
    signed = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    if len(signed) != len(statement["subject"]):
        raise Broken("The statement names a file twice")
    problems, here = [], set()
    for path in sorted(_all_paths(folder)):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            problems.append(f"{name} is not a regular file")
        elif path.is_file() and name != ENVELOPE:
            here.add(name)
            if name not in signed:
                problems.append(f"{name} is not part of what was signed")
            elif digest_of(path) != signed[name]:
                problems.append(f"{name} was changed after it was signed: its SHA-256 differs")
    problems += [f"{name} is missing" for name in sorted(signed.keys() - here)]
    if problems:
        raise Broken(*problems)


def _all_paths(folder: Path) -> Iterator[Path]:
    """All files and folders in it; a folder that can't be read is an error, not empty."""

    def refuse(error: OSError) -> None:
        raise error

    for root, folders, files in os.walk(folder, onerror=refuse):
        yield from (Path(root, name) for name in (*folders, *files))


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_report(folder: Path) -> Iterator[str]:
    """The page names the digest of this document."""
    if digest_of(folder / EVIDENCE) not in (folder / "report.html").read_text(encoding="utf-8"):
        yield f"report.html was not made from this {EVIDENCE}"


# -- 3: journals, anchors, missing runs ------------------------------------------------------------------------------


def journal_of(run: str | None) -> str:
    """The file that holds the journal of a run, verbatim."""
    return f"journal/{run}.jsonl"


def chain_problem(run: str, entries: list[Row]) -> str | None:
    """The first break of a journal's chain (docs/journal.md has the form); None: there is none."""
    before = "0" * 64
    names = ("run", "seq", "at", "stage", "event", "previous", "payload_text")
    for number, entry in enumerate(entries):
        if entry.keys() != {*names, "hash"} or any("\n" in str(entry[name]) for name in names[:-1]):
            return f"the journal of {run} is broken at entry {number}: its members are not those of an entry"
        text = "\n".join(str(entry[name]) for name in names)
        if entry["run"] != run or entry["seq"] != number or entry["previous"] != before:
            return f"the journal of {run} is broken at entry {number}: an entry is missing or doesn't follow"
        if hashlib.sha256(text.encode()).hexdigest() != entry["hash"]:
            return f"the journal of {run} is broken at entry {number}: it was changed after it was written"
        before = entry["hash"]
    return None if entries else f"the journal of {run} has no entry"


def check_journals(folder: Path, evidence: Row, notes: list[str], confirmed: dict[str, int]) -> Iterator[str]:
    """Each chain is unbroken and contains its anchored heads, and no anchored run is missing from the store's list.

    `confirmed` gets, by run, the last entry that an anchor names.
    """
    listed = {row["run"] for row in _lines(folder, RUNS)}
    places = _json(folder, ANCHORS)["places"]
    chains = {said["run"]: _lines(folder, journal_of(said["run"])) for said in evidence["journals"]}
    if evidence["kind"] != "drill" and evidence["run"] not in chains:
        yield f"The journal of {evidence['run']} is not in the bundle"
    yield from check_anchors(places, chains, listed, confirmed)
    for said in evidence["journals"]:
        run = said["run"]
        yield from check_journal(said, chains[run], notes)
        if run not in listed:
            yield f"Run {run} is missing from the list of runs"
        through = confirmed.get(run)
        if said["anchored_through"] != through:
            claim = f"anchors confirm it through entry {said['anchored_through']}"
            yield f"{EVIDENCE} says of the journal of {run} that {claim}, and {ANCHORS} gives {through}"
        notes += unconfirmed(f"entries of {run}", len(chains[run]), through)
    unread = [place for place in places if place["anchors"] is None]
    notes += [f"Anchors of {each['place']} could not be read at the export: {each['reason']}" for each in unread]


def read_anchors(file: Path) -> list[Row]:
    """The anchors of a file: one JSON object per line, like the operator's file and the records of `__drkit_journal`.

    A line that a kill cut short is ignored, as in drkit.
    """
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = _load(line)
            head = {"run": str(row["run"]), "seq": int(row["seq"]), "hash": str(row["hash"])}
            found.append(head | {"store": row["store"], "at": row.get("at")})
        except (ValueError, KeyError, TypeError):
            continue
    return found


def check_outside(
    folder: Path, evidence: Row, anchors: list[Row], notes: list[str], confirmed: dict[str, int]
) -> Iterator[str]:
    """The chains contain the heads given by the user, and the run, or the chain of drills, has at least one.

    No run that was anchored in the same store before is missing from the list of runs. What was anchored after the
    export can't be in the bundle: a note says how much that is.
    """
    exported = datetime.fromisoformat(evidence["exported_at"])
    listed = {row["run"] for row in _lines(folder, RUNS)}
    for said in evidence["journals"]:
        run, entries = said["run"], _lines(folder, journal_of(said["run"]))
        heads = [anchor for anchor in anchors if anchor["run"] == run]
        yield from _anchor_mismatches(f"journal of {run}", entries, heads, exported, notes)
        stored = {str(head["store"]) for head in heads}
        last = max((number for number, anchor in enumerate(anchors) if anchor["run"] == run), default=0)
        before = {anchor["run"] for anchor in anchors[:last] if str(anchor["store"]) in stored}
        for gone in sorted(before - listed - {"drills"}):
            yield f"Run {gone} was anchored before {run}, by those given, and is missing from the list of runs"
        contained = [head["seq"] for head in heads if _contains_head(entries, head)]
        if contained:
            confirmed[run] = max(contained)
        elif run == evidence["run"]:
            yield f"The anchors given have no head of the journal of {run}: they don't confirm it"
        notes += [
            f"{each}, by those given" for each in unconfirmed(f"entries of {run}", len(entries), confirmed.get(run))
        ]
    if evidence["kind"] == "drill":
        entries = _lines(folder, DRILLS)
        drills = [anchor for anchor in anchors if anchor["run"] == "drills"]
        # a machine may have several chains of drills: this is the one that contains a head
        mine = {str(head["store"]) for head in drills if _contains_head(entries, head)}
        heads = [head for head in drills if str(head["store"]) in mine]
        if not heads:
            yield "The anchors given have no head of the chain of drills: they don't confirm it"
        yield from _anchor_mismatches("chain of drills", entries, heads, exported, notes)
        through = max((head["seq"] for head in heads if _contains_head(entries, head)), default=None)
        notes += [f"{each}, by those given" for each in unconfirmed("entries of drills", len(entries), through)]


def _anchor_mismatches(
    chain: str, entries: list[Row], heads: list[Row], exported: datetime, notes: list[str]
) -> Iterator[str]:
    missing = [head for head in heads if head["seq"] >= len(entries)]
    wrong = [head["seq"] for head in heads if head not in missing and not _contains_head(entries, head)]
    if wrong:
        yield f"The {chain} was cut or written again: the anchors given differ at entry {min(wrong)}"
    later = {head["seq"] for head in missing if _is_after(head.get("at"), exported)}
    lacking = sorted({head["seq"] for head in missing} - later)
    if lacking:
        yield f"The {chain} lacks entry {lacking[0]}, which the anchors given have from before the export: it was cut"
    if later:
        more = f"{len(later)} more entries of the {chain} were anchored after the export"
        notes.append(f"{more}, by those given: compare with a newer bundle")


def _is_after(at: Any, moment: datetime) -> bool:
    try:
        return datetime.fromisoformat(at) > moment
    except (TypeError, ValueError):  # it has no time
        return False


def unconfirmed(what: str, entries: int, through: int | None) -> list[str]:
    """A note on the entries of a chain that no anchor confirms; empty if the last one is confirmed."""
    words = "none" if through is None else f"those up to {through}"
    return [] if through == entries - 1 else [f"Of the {entries} {what}, anchors confirm {words}"]


def check_journal(said: Row, entries: list[Row], notes: list[str]) -> Iterator[str]:
    """A journal is an unbroken chain, and the one that evidence.json names."""
    run = said["run"]
    problem = chain_problem(run, entries)
    if problem is not None:
        yield problem
        return
    if (said["entries"], said["head"]) != (len(entries), entries[-1]["hash"]):
        yield f"{EVIDENCE} names a different head of the journal of {run}"
    if said["chain"] in ("broken", "cut"):
        yield f"The journal of {run} is not what was written, as {EVIDENCE} says: {said['verdict']}"
    back = [entry["seq"] for entry, after in pairwise(entries) if after["at"] < entry["at"]]
    if back:
        notes.append(f"The clock went back in the journal of {run} after entry {', '.join(map(str, back))}")


def check_anchors(
    places: list[Row], chains: dict[str, list[Row]], listed: set[str], confirmed: dict[str, int]
) -> Iterator[str]:
    """The chains contain the heads that were anchored out of reach of the store's writers, and each such run is listed.

    `confirmed` gets, by run, the last entry that an anchor names.
    """
    for place in places:
        for anchor in place["anchors"] or ():
            run, seq = anchor["run"], anchor["seq"]
            confirmed[run] = max(seq, confirmed.get(run, -1))
            if run in chains and not _contains_head(chains[run], anchor):
                yield f"The journal of {run} was cut or written again: {place['place']} has another head at entry {seq}"
    for run in sorted(confirmed.keys() - listed):
        yield f"Run {run} was anchored and is missing from the list of runs: the store lost it"


def check_drills(folder: Path, evidence: Row, notes: list[str]) -> Iterator[str]:
    """The chain of all drills is unbroken, and has this drill with the digest of every kept file."""
    entries, run = _lines(folder, DRILLS), evidence["run"]
    problem = chain_problem("drills", entries)
    if problem is not None:
        yield f"{problem}; a drill is missing, or the chain was written again"
        return
    anchors = _json(folder, DRILL_ANCHORS)
    yield from compare(evidence, {f"drills.{name}": said for name, said in drills_statement(entries, anchors).items()})
    yield from check_drill_anchors(anchors, entries, notes)
    unended = without_result(entries)
    if unended:
        notes.append(f"Drills that began and left no result, killed or still running: {', '.join(unended)}")
    drills = kept_drills(entries)
    mine = [body for body in drills if body["run"] == run]
    if len(mine) != 1:
        yield f"Drill {run} is in the chain of drills {len(mine)} times"
        return
    yield from check_kept(folder, run, mine[0]["files"])
    theirs = {name: evidence[name] for name in ("title", "verdict", "started_at")}
    theirs |= {name: evidence["measured"][name] for name in mine[0]["measured"]}
    theirs |= {"objectives": evidence["configuration"]["objectives"]}
    for name, said in theirs.items():
        entered = mine[0]["measured"].get(name, mine[0].get(name))
        if not _same(entered, said):
            yield f"The chain of drills says {name} {entered}, {EVIDENCE} {said}"
    gone = evidence["drills"]["not_kept_any_more"]
    if not {*gone} <= {body["run"] for body in drills} - {run}:
        yield f"{EVIDENCE} lists drills as not kept any more that the chain of drills never had"


def kept_drills(entries: list[Row]) -> list[Row]:
    """What the chain of drills has of each one that was kept."""
    return [_load(entry["payload_text"]) for entry in entries if entry["event"] == "kept"]


def check_kept(folder: Path, run: str, digests: dict[str, str]) -> Iterator[str]:
    """The kept files of a drill are those in the chain of drills, byte for byte."""
    journals = {f"journal/{path.name}" for path in (folder / "journal").glob("*")}
    for name in sorted({*DRILL_FILES, *journals} - digests.keys()):
        yield f"{name} is not among the files that were kept of {run}: the chain of drills does not have it"
    for name, digest in sorted(digests.items()):
        if not _inside(folder, name).is_file():
            yield f"{name} is missing: the chain of drills has it of {run}"
        elif digest_of(folder / name) != digest:
            yield f"{name} is not what the chain of drills says of {run}"


def drills_statement(entries: list[Row], anchors: Row) -> Row:
    """What evidence.json says about the chain of drills: its end, and how many of its entries anchors confirm."""
    heads = [*anchors["drills"], *(head for heads in anchors["other_drills"].values() for head in heads)]
    anchored = {head["seq"] for head in heads if _contains_head(entries, head)}
    return {
        "file": DRILLS,
        "entries": len(entries),
        "head": entries[-1]["hash"],
        "anchored": len(anchored),
        "anchored_through": max(anchored, default=None),
        "without_result": without_result(entries),
        "other_chains": {name: len(heads) for name, heads in anchors["other_drills"].items()},
    }


def without_result(entries: list[Row]) -> list[str]:
    """The drills that began, and were not kept since: they were killed, crashed, or still run."""
    begun = [_load(entry["payload_text"])["run"] for entry in entries if entry["event"] == "begun"]
    kept = {body["run"] for body in kept_drills(entries)}
    return [run for run in begun if run not in kept]


def check_drill_anchors(anchors: Row, entries: list[Row], notes: list[str]) -> Iterator[str]:
    """The chain of drills contains its anchored heads; notes name a chain that it was copied from, or a parallel."""
    for anchor in anchors["drills"]:
        if not _contains_head(entries, anchor):
            yield f"The chain of drills was cut or written again: entry {anchor['seq']} was anchored with another head"
    others = anchors["other_drills"]
    shared = {name: [head["seq"] for head in heads if _contains_head(entries, head)] for name, heads in others.items()}
    own = [anchor["seq"] for anchor in anchors["drills"]]
    through = max((seq for each in (own, *shared.values()) for seq in each), default=None)
    notes += unconfirmed("entries of drills", len(entries), through)
    for name, heads in others.items():
        lacks = len(heads) - len(shared[name])
        if shared[name] and lacks:
            notes.append(
                f"The chain of drills was copied from another ({name}), and lacks {lacks} of the drills anchored of it"
            )
    apart = sum(not each for each in shared.values())
    if apart:
        notes.append(
            f"The machine of the export anchored {apart} other chains of drills; this one has none of their drills"
        )


def check_drill(folder: Path, evidence: Row, notes: list[str]) -> Iterator[str]:
    """evidence.json says of a drill what follows from its files and the chain of drills."""
    run, drills = evidence["run"], kept_drills(_lines(folder, DRILLS))
    computed = drill_document(folder, run, drills)
    yield from compare(evidence, computed)
    yield from check_findings(evidence, computed, set(retests(run, drills)))
    by_clock = seconds_between(computed["started_at"], computed["ended_at"])
    if abs(by_clock - computed["seconds"]) > CLOCK_SET:
        took = f"it took {computed['seconds']} s, and {by_clock} s by the clock"
        notes.append(f"The clock was set during the drill: {took}")


def retests(run: str, drills: list[Row]) -> Iterator[str]:
    """Later drills that played the same experiment, with objectives at least as strict, and passed: only these are
    retests."""
    number = next((number for number, each in enumerate(drills) if each["run"] == run), len(drills))
    for each in drills[number + 1 :]:
        same = [(one["title"], one["files"].get("experiment.yaml")) for one in (drills[number], each)]
        limits, theirs = drills[number]["objectives"], each["objectives"]
        strict = all(theirs.get(name, math.inf) <= limit for name, limit in limits.items())
        if same[0] == same[1] and strict and each["verdict"] == "passed":
            yield each["run"]


def _contains_head(entries: list[Row], anchor: Row) -> bool:
    """Whether a chain contains an anchored head."""
    return bool(0 <= anchor["seq"] < len(entries) and entries[anchor["seq"]]["hash"] == anchor["hash"])


# -- 4: verdicts -----------------------------------------------------------------------------------------------------


def compare(evidence: Row, computed: Row) -> Iterator[str]:
    """The differences between evidence.json and what was computed again; a dot in a name leads into a member."""
    for name, value in computed.items():
        said: Any = evidence
        for part in name.split("."):
            said = said.get(part) if isinstance(said, dict) else None
        yield from islice(differences(name, said, value), MOST_DIFFERENCES)


def differences(name: str, said: Any, ours: Any, give: str = "the raw data gives") -> Iterator[str]:
    """The differences of two JSON values: the innermost members that differ, each with both values."""
    if isinstance(said, dict) and isinstance(ours, dict):
        for key in sorted(said.keys() | ours.keys()):
            if key not in ours:
                yield f"{name} has a member {_short(key)}: {_short(said[key])}, and {give} none"
            else:
                yield from differences(f"{name}.{key}", said.get(key), ours[key], give)
    elif isinstance(said, list) and isinstance(ours, list) and any(isinstance(e, dict | str) for e in (*said, *ours)):
        for number in range(max(len(said), len(ours))):
            theirs, mine = (each[number] if number < len(each) else None for each in (said, ours))
            yield from differences(f"{name}[{number}]", theirs, mine, give)
    elif not _same(said, ours):
        yield f"{name} is said to be {_short(said)}, and {give} {_short(ours)}"


def open_points(judged: Row, deviations: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Findings (id, what) of the judgement: checks not passed, objectives not met, deviations from the plan."""
    for each in judged["checks"]:
        if each["outcome"] != "passed":
            why = each["reason"] or f"{_anomalies(each['anomalies'] or 0)}, see its witnesses"
            yield f"check:{named_check(each)}", f"{named_check(each)} is {each['outcome']}: {why}"
    for each in judged["objectives"]:
        if each["outcome"] != "met":
            word = each["reason"] or f"it is {each['measured']}, the objective {each['objective']}"
            yield f"objective:{each['name']}", f"{each['name']} is {each['outcome']}: {word}"
    for number, deviation in enumerate(deviations, 1):
        yield f"deviation:{number}", deviation


def check_findings(evidence: Row, computed: Row, passed: Collection[str]) -> Iterator[str]:
    """Every open point is a finding, in these words; only a passed retest closes one (`passed`: such drills).

    The findings added at the export follow; they rest on the signature.
    """
    deviations = computed["deviations"] if "deviations" in computed else evidence["deviations"]
    points = open_points(computed, deviations)
    ours = [{"id": name, "what": what} for name, what in points]
    said = [{name: each[name] for name in ("id", "what")} for each in evidence["findings"]]
    yield from differences("findings", said[: len(ours)], ours)
    for each in evidence["findings"]:
        status = "closed" if each["retest"] is not None and each["retest"] in passed else "open"
        yield from differences(f"status of finding {each['id']}", each["status"], status)


def document_problems(what: str, told: Row, entries: list[Row], *, ended: bool = True) -> Iterator[str]:
    """The differences between a document of drkit (`drkit failover`, `drkit runs`) and the journal of its run.

    A command that didn't end well (not `ended`) may have known more than it could write to its journal.
    """
    judged = run_judgement(entries)
    _, first = next(events(entries))
    plan, measured = first["plan"], judged["measured"]
    ours = {"kind": first["kind"], "mode": plan["mode"], "to": plan["target"]["alias"], "digest": plan.get("digest")}
    theirs = {name: told[name] for name in ours}
    if ended:
        outcomes = {step["name"]: step["outcome"] for step in judged["steps"] if step["reason"] != NOT_ENDED}
        ours |= {"state": judged["state"], "stages": outcomes, "rpo_records": measured["rpo_records"]}
        theirs |= {"state": told["state"], "rpo_records": told["evidence"]["rpo_records"]}
        theirs |= {"stages": {stage["name"]: stage["outcome"] for stage in told["stages"]}}
    for name, value in ours.items():
        yield from differences(f"{name} of {what}", theirs[name], value, "the journal gives")
    for name in ("rpo_seconds", "rto_seconds") if ended else ():
        said, value = told["evidence"][name], measured[name]
        if (said is None) != (value is None) or (said is not None and abs(said - value) > CLOCKS):
            yield from differences(f"{name} of {what}", said, value, "the journal gives")


def check(name: str, outcome: str, reason: str | None = None, witnesses: list[Row] | None = None) -> Row:
    """One check: `passed`, `failed` or `unknown`; witnesses show the first anomalies, `anomalies` counts all."""
    shown = witnesses or []
    anomalies = None if outcome == "unknown" else len(shown) or int(outcome == "failed")
    return {"check": name, "outcome": outcome, "anomalies": anomalies, "reason": reason, "witnesses": shown[:10]}


MOVE = "fence:fenced drain:drained translate:translated commit:committed switch:switched verify:verified close:closed"
BACK = "salvage:salvaged scrub:scrubbed reverse:reversed reseed:reseeded audit:audited"
PATHS = {
    "failover": MOVE,
    "failback": f"{BACK} {MOVE}",
    "reprotect": f"{BACK} close:closed",
    "rehearsal": "commit:committed verify:verified clean:closed",
}
"""By kind of run: its stages, each with the state that it reaches."""
MOVES = ("failover", "failback")
ENDED = ("cancelled", "abandoned")


def events(entries: list[Row]) -> Iterator[tuple[Row, Any]]:
    """A journal's entries with their payloads; long payloads are joined from their parts."""
    parts: list[str] = []
    for entry in entries:
        body = _load(entry["payload_text"])
        if isinstance(body, dict) and body.keys() == {"part", "of", "text"}:
            parts = [*(parts if body["part"] > 1 else []), body["text"]]
            if not body["part"] == body["of"] == len(parts):
                continue
            body = _load("".join(parts))
        yield entry, body


def run_ended_at(happened: list[tuple[Row, Any]]) -> str:
    """When a run ended, or stopped: at its last entry but for losses that were counted later."""
    return next(str(entry["at"]) for entry, _ in reversed(happened) if entry["event"] != "audited")


def replay(kind: str, started_at: str, facts: Row, happened: list[tuple[Row, Any]]) -> tuple[str, Row, list[Row]]:
    """A run's state, its facts, and the last outcome of each of its stages."""
    reaches = dict(step.split(":") for step in PATHS[kind].split())
    state, steps = "planned", dict[str, Row]()
    for entry, body in happened:
        stage, event = entry["stage"], entry["event"]
        if event in ENDED:
            state = event
        elif event == "rewound":
            state, facts = "audited" if kind == "failback" else "planned", body["facts"]
        elif event == "facts":
            facts = body["facts"]
        elif event == "audited":
            facts = {**facts, "loss": body}
        elif event == "intent":
            steps.setdefault(stage, _step(stage))["attempts"] += 1
        elif event == "outcome":
            step = steps.setdefault(stage, _step(stage))
            step |= {name: body[name] for name in ("outcome", "reason", "seconds")}
            step["ended_after_seconds"] = seconds_between(started_at, entry["at"])
            if body["outcome"] in ("ok", "skipped") and stage in reaches and state not in ENDED:
                state, facts = reaches[stage], body["facts"] or facts
    return state, facts, list(steps.values())


def check_identity(folder: Path, evidence: Row) -> Iterator[str]:
    """What ran, when, on which clusters, with which configuration and by whom agrees with the journal."""
    entries = _lines(folder, journal_of(evidence["run"]))
    happened = list(events(entries))
    first = happened[0][1]
    plan, origin, began, ended = first["plan"], first["origin"], first["started_at"], run_ended_at(happened)
    link = f"{plan['link']['source']}->{plan['link']['target']}"
    views = [plan[role] for role in ("source", "live", "target") if plan.get(role)]
    yield from compare(
        evidence,
        {
            "kind": first["kind"],
            "title": f"{first['kind']} of {link}",
            "started_at": _iso(datetime.fromisoformat(began)),
            "ended_at": ended,
            "seconds": seconds_between(began, ended),
            "what.link": link,
            "what.mode": plan["mode"],
            "what.plan_digest": plan.get("digest"),
            "what.stages": plan.get("stages", []),
            "drkit.version": origin["drkit"],
            "configuration.digest": origin["configuration_digest"],
            "configuration.links": origin["links"],
            "configuration.objectives": {n: limit for n, limit in origin["objectives"].items() if limit is not None},
            "clusters": [{"alias": view["alias"], "cluster_id": view["cluster_id"]} for view in views],
            "who.operator": origin["operator"],
            "who.taken_over_by": [body["by"] for row, body in happened if row["event"] == "taken"],
        },
    )
    if not _same(_json(folder, "plan.json"), plan):
        yield "plan.json is not the plan that the journal begins with"
    if evidence["what"]["result"] is not None:
        yield from document_problems("result.json", _json(folder, "result.json"), entries)


def check_tail(entries: list[Row], through: int | None, verdict: str, notes: list[str]) -> Iterator[str]:
    """Any writer of the store may have forged the entries after the last anchor: they can't clear a failed run."""
    if through is None or through >= len(entries) - 1:
        return
    try:
        before = str(run_judgement(entries[: through + 1])["verdict"])
    except Broken:
        before = "unknown"
    if before != verdict:
        tail = f"The verdict {verdict} rests on entries {through + 1} to {len(entries) - 1}, which no anchor confirms"
        sentence = f"{tail}; up to entry {through} it is {before}"
        if before == "failed":
            yield f"{sentence}. Export it where all anchors can be read"
        else:
            notes.append(sentence)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def run_judgement(entries: list[Row]) -> Row:
    """State, numbers, checks, objectives and verdict of a failover, failback, reprotect or rehearsal."""
    happened = list(events(entries))
    if not happened or happened[0][0]["event"] != "plan":
        raise Broken("The journal does not begin with a plan: the run was killed before it changed anything")
    first = happened[0][1]
    kind = first["kind"]
    state, facts, steps = replay(kind, first["started_at"], first.get("facts") or {}, happened[1:])
    if kind == "rehearsal" and state == "closed" and {s["name"]: s["outcome"] for s in steps}.get("verify") != "ok":
        state = "cancelled"
    loss = facts.get("loss") or {}
    wanted = {} if kind == "reprotect" else first["origin"]["objectives"]
    objectives_set = [name for name, limit in wanted.items() if limit is not None]
    since = facts.get("fenced_at") if kind == "failback" else first["started_at"]
    verified = facts.get("verified_at")
    went_back = bool(since and verified and datetime.fromisoformat(verified) < datetime.fromisoformat(since))
    measured = {
        "rpo_records": loss.get("records"),
        "rpo_seconds": loss.get("seconds"),
        "rto_seconds": None if went_back or not (since and verified) else seconds_between(since, verified),
        "rpo_basis": loss.get("basis"),
        "rpo_lower_bound": loss.get("lower_bound", False),
        "rpo_upper_bound": loss.get("upper_bound", False),
        "rpo_reason": loss.get("reason"),
        "rto_reason": "the clock went back during the run" if went_back else None,
    }
    checks = list(_run_checks(kind, state, facts))
    unjudged = kind in MOVES and not {"rpo_records", "rpo_seconds"} & set(objectives_set)
    if kind in MOVES and "rpo_records" not in objectives_set:
        checks.append(_loss_known(measured, "; no RPO objective was set" if unjudged else ""))
    objectives = [_objective(name, wanted[name], measured) for name in objectives_set]
    verdict, reasons = _verdict(checks, objectives, [], [])
    if unjudged and verdict == "passed" and measured["rpo_records"]:
        reasons = [
            f"no RPO objective was set: nothing judges that records were lost, {measured['rpo_records']} of them"
        ]
    return {
        "state": state,
        "steps": steps,
        "measured": measured,
        "checks": checks,
        "objectives": objectives,
        "verdict": verdict,
        "reasons": reasons,
    }


def _not_written_check(state: str, facts: Row) -> Row:
    """Whether nobody wrote to the cluster that groups left, behind the fence that the run left."""
    name = "old_cluster_not_written"
    late = [{"partition": tp, "from": a, "to": b} for tp, (a, b) in sorted((facts.get("late") or {}).items())]
    if late:
        return check(name, "failed", "written after the last look, unfenced", late)
    if facts.get("fenced") and state == "cancelled":
        return check(name, "unknown", "the run was taken back, its fence with it")
    if facts.get("fenced") and facts.get("unseen"):
        return check(name, "unknown", f"not all of it was seen: {facts.get('fence_reason')}")
    if facts.get("fenced"):
        return check(name, "passed", facts.get("fence_reason"))
    why = facts.get("fence_reason") or "nothing is recorded of the fence"
    accepted = "; an operator accepted that" if facts.get("unfenced_accepted") else ""
    return check(name, "unknown", f"it was not fenced: {why}{accepted}")


def _run_checks(kind: str, state: str, facts: Row) -> Iterator[Row]:
    """The invariants that the run's own facts must prove."""
    ended = {"closed": ("passed", None)}.get(state, ("unknown", f"the run is not at its end: it is {state}"))
    yield check("finished", *(("failed", f"the run was {state}") if state in ENDED else ended))
    if kind in MOVES:
        yield _not_written_check(state, facts)
        settled = bool(facts.get("mirror_stopped") and (facts.get("sealed") or facts.get("reversed")))
        yield _measured_check("no_mirror_writes_below", settled, facts.get("mirror_stopped") or None)
        if facts.get("mode") == "planned":
            yield _measured_check("planned_move_waited_for_all_records", facts.get("lag") == 0, facts.get("lag"))
    if kind not in {"failover", "rehearsal"}:
        kept = facts.get("salvaged") is not None and facts.get("cluster_confirmed") is not None
        yield _measured_check("kept_before_deleted", kept, facts.get("salvaged"))
        yield _measured_check("audit_clean", facts.get("audit") == "clean", facts.get("audit"))
    if kind != "reprotect":
        placed, committed, verified = facts.get("placed"), facts.get("committed"), facts.get("verified")
        if placed == 0 and not committed and not verified:
            for name in ("all_positions_committed", "positions_read_back", "records_at_positions_unchanged"):
                yield check(name, "unknown", "no position was moved")
            return
        yield _measured_check("all_positions_committed", committed == placed, committed)
        yield _measured_check("positions_read_back", verified == committed, verified)
        yield _places_unchanged(facts.get("places"))


def _places_unchanged(places: Row | None) -> Row:
    """Whether the records at the groups' new positions are the planned ones."""
    why = None
    if not places:
        why = "no place was looked at again"
    elif places["unknown"]:
        why = f"{places['unknown']} places could not be compared"
    elif not any(places[name] for name in ("same", "end", "new", "different")):
        why = f"no place was compared: of {places['gone']} the record is gone"
    outcome = "unknown" if not places or why else "failed" if places["different"] else "passed"
    return check("records_at_positions_unchanged", outcome, why)


def _loss_known(measured: Row, more: str) -> Row:
    """The check if no objective in records judges the loss: a run whose loss isn't counted hasn't passed."""
    why = f": {measured['rpo_reason'] or 'nothing is recorded of it'}{more}"
    if measured["rpo_records"] is None:
        return check("loss_known", "unknown", f"the loss is not known{why}")
    if measured["rpo_lower_bound"]:
        more = ", more or fewer" if measured["rpo_upper_bound"] else " or more"
        return check("loss_known", "unknown", f"{measured['rpo_records']} records{more} were lost{why}")
    if measured["rpo_upper_bound"] and measured["rpo_records"]:
        return check("loss_known", "unknown", f"{measured['rpo_records']} records or fewer were lost{why}")
    return check("loss_known", "passed")


def _measured_check(name: str, holds: bool, known: object) -> Row:
    return check(
        name, "unknown" if known is None else "passed" if holds else "failed", None if holds else f"it is {known}"
    )


def _objective(name: str, limit: float, measured: Row) -> Row:
    value = measured[name]
    missed = value is not None and value > limit
    unsure = name == "rpo_records" and measured.get("rpo_upper_bound" if missed else "rpo_lower_bound")
    outcome = "unknown" if value is None or unsure else "missed" if missed else "met"
    reason = measured.get("rto_reason" if name == "rto_seconds" else "rpo_reason") or "it could not be measured"
    return {
        "name": name,
        "objective": limit,
        "measured": value,
        "outcome": outcome,
        "reason": reason if outcome == "unknown" else None,
    }


def _verdict(checks: list[Row], objectives: list[Row], refuted: list[str], unseen: list[str]) -> tuple[str, list[str]]:
    """A failed check or step, or a missed objective: failed. Else anything not seen: unknown. Else passed.

    A drill in which something wasn't seen and nothing was refuted is unknown even if an objective was missed.
    """
    refuted = refuted + [
        f"{c['check']}: {c['reason'] or 'anomalies were found'}" for c in checks if c["outcome"] == "failed"
    ]
    unseen = unseen + [f"{c['check']}: {c['reason']}" for c in checks if c["outcome"] == "unknown"]
    unseen += [f"{o['name']}: {o['reason']}" for o in objectives if o["outcome"] == "unknown"]
    missed = [
        f"{o['name']} is {o['measured']}, the objective {o['objective']}"
        for o in objectives
        if o["outcome"] == "missed"
    ]
    verdict = "failed" if refuted else "unknown" if unseen else "failed" if missed else "passed"
    return verdict, [*refuted, *missed, *unseen]


class History:
    """The recordings of the clients of one link of a drill, and the checks on them; each row begins with its link.

    attempts: key, seq, cluster, partition, sent_at, digest, outcome, offset, acked_at, transaction
    polls: session, assignment, cluster, partition, offset, key, seq, at
    positions: cluster, partition, offset, at
    landed: cluster, partition, offset, key, seq, digest (at the end, read by a bystander: on the target, and on the
        source of a link that a failback brought back)
    lag: at, lag_records (as the mirror reported it; the only time of the wall clock)
    stated: partition, offset, reread_at_most, at (of the group, by the last failover if it succeeded)
    ends: partition, stable, end (of the target after the drill, if it wrote in transactions)
    returned: at (the failback's end), ends, incomplete (both of the source); None: no failback brought the link back
    stated_loss: records, lower_bound, at (of the topic, by the only failover if it succeeded, as of its begin)
    """

    def __init__(self, meta: Row, rows: dict[str, list[Row]]) -> None:
        self.source, self.target, self.disaster_at, self.moved, self.incomplete, *stated = (
            meta[name] for name in LINK_HISTORY
        )
        self.stated, self.ends, back, self.stated_loss = stated
        self.returned: Row | None = back
        self.link = f"{self.source}->{self.target}"
        self.attempts, self.polls, self.positions, self.landed, self.lag = (
            [row for row in rows[part] if row["link"] == self.link] for part in HISTORY
        )
        for row in (*self.attempts, *self.polls, *self.landed):
            row["record"] = None if row["key"] is None else (row["key"], row["seq"])
        self.landed.sort(key=lambda row: (row["partition"], row["offset"]))
        read = {self.target} if self.returned is None else {self.source, self.target}
        if {row["cluster"] for row in self.landed} - read:
            raise Broken(f"history/landed.jsonl has records of {self.link} on a cluster that was not read")
        self.on_source = [row for row in self.landed if row["cluster"] == self.source]
        self.landed = [row for row in self.landed if row["cluster"] == self.target]
        self.on_target = {row["record"] for row in self.landed if row["record"]}
        self.acked = [row for row in self.attempts if row["outcome"] == "acked"]
        self.aborted = {row["record"] for row in self.attempts if row["outcome"] == "aborted"}
        self.transactions: dict[str, list[Row]] = {}
        for row in self.acked:
            if row["transaction"] is not None:
                self.transactions.setdefault(row["transaction"], []).append(row)

    def times(self) -> dict[str, list[float]]:
        """All times of the monotonic clock, by part of the history."""
        both = [row[name] for row in self.attempts for name in ("sent_at", "acked_at") if row[name] is not None]
        polls, positions = ([row["at"] for row in rows] for rows in (self.polls, self.positions))
        stated = [row["at"] for row in (*self.stated, *([self.stated_loss] if self.stated_loss else []))]
        back = [] if self.returned is None else [self.returned["at"]]
        return {"attempts": both, "polls": polls, "positions": positions, "stated": stated, "returned": back}

    def judge(self, name: str) -> Row:
        """One check of the link: of its target, and of its source if that was brought back."""
        made = [self._judge(name, CHECKS)]
        if self.returned is not None and name in BACK_CHECKS:
            made.append(self._other_way(self.returned)._judge(name, BACK_CHECKS))  # noqa: SLF001  # its own class
        failed = [each for each in made if each["outcome"] == "failed"]
        found = next((each for each in made if each["outcome"] == "unknown"), made[0])
        if failed:
            witnesses = [one for each in failed for one in each["witnesses"]][:10]
            found = failed[0] | {"anomalies": sum(each["anomalies"] for each in failed), "witnesses": witnesses}
        return {"check": found["check"], "link": self.link, **found}

    def _other_way(self, returned: Row) -> History:
        """The same recordings with source and target exchanged, as the cluster that was brought back must hold them."""
        other = copy(self)
        other.source, other.target, other.landed, other.on_source = (
            self.target,
            self.source,
            self.on_source,
            self.landed,
        )
        other.on_target = {row["record"] for row in other.landed if row["record"]}
        other.ends = returned["ends"]
        clients = {part: why for part, why in self.incomplete.items() if part in ("attempts", "polls")}
        other.incomplete = clients | returned["incomplete"]
        return other

    def _since(self, row: Row) -> bool:
        """Whether a record was acknowledged after the failback: earlier offsets may be those of a log that is gone."""
        return self.returned is not None and row["acked_at"] >= self.returned["at"]

    def _not_back(self) -> list[Row]:
        """What a source that was brought back lacks of all that the target held or acknowledged, and of its own since.

        Asked of the other way's history, whose target it is.
        """
        there, copied = self.on_target, {row["record"] for row in self.on_source}
        wanted = (r for r in self.acked if r["cluster"] == self.source or r["record"] in copied or self._since(r))
        return [row for row in wanted if row["record"] not in there]

    def _judge(self, name: str, checks: dict[str, tuple[Finder, set[str], set[str]]]) -> Row:
        """A missing part of the history never makes a check pass, and never causes an anomaly by itself."""
        find, needs, forged = checks[name]
        missing = "; ".join(self.incomplete[part] for part in sorted(needs) if part in self.incomplete)
        if forged & self.incomplete.keys():
            return check(name, "unknown", missing)
        if not (self.attempts or self.polls or self.landed):
            return check(name, "unknown", "nothing was sent and nothing was read")
        try:
            found = [
                {"cluster": c, **{k: row[k] for k in ("partition", "offset", "record")}, "text": text}
                for c, row, text in find(self)
            ]
        except Broken as cannot:
            return check(name, "unknown", str(cannot))
        for row in found:
            row["record"] = None if row["record"] is None else f"{row['record'][0]}#{row['record'][1]}"
        if found:
            return check(name, "failed", None, found)
        why = missing or self.vacuous("" if find is History.lost_back else name)
        return check(name, "unknown" if why else "passed", why)

    def vacuous(self, name: str) -> str | None:  # noqa: C901, PLR0911  # one arm a check
        """Why a check without anomalies had nothing to check; None: it had."""
        if name == "lost":
            by_source = any(row["cluster"] == self.source for row in self.acked)
            return None if by_source else f"{self.source} acknowledged nothing"
        if name == "nonmonotonic_poll":
            return None if self.polls else "the group read nothing"
        if name == "both_sides_written":
            acked = {row["cluster"] for row in self.acked}
            silent = [cluster for cluster in (self.source, self.target) if cluster not in acked]
            return f"{silent[0]} acknowledged nothing" if silent else None
        if name == "position_moved_back":
            return None if self.positions else "no position of the group was confirmed"
        if name == "reread_beyond_plan":
            read = next(self._polls_after_failover(), None)
            return None if read else f"the group read nothing on {self.target} after the failover"
        if name == "loss_beyond_plan":
            return None if self._promised_before() else f"{self.source} acknowledged nothing before the failover"
        if name == "stable_offset_stuck":
            if all(row["transaction"] is None for row in self.attempts):
                return "nothing was written in a transaction"
            return None if self.ends else f"no end of a partition of {self.target} is known"
        if name == "torn_transaction":
            return None if self.transactions else "no transaction was committed"
        if name in ("aborted_read", "dirty_commit") and not self.aborted:
            return "no transaction was aborted"
        if name == "aborted_read":
            return None if self.polls else "the group read nothing"
        return None if self.landed else f"nothing is on {self.target}"

    def lost(self) -> Iterator[Anomaly]:
        """Acknowledged by the source and missing on the target before a later one; or acknowledged by the target."""
        through: dict[tuple[int, bool], int] = {}
        on_source = [row for row in self.acked if row["cluster"] == self.source]
        for row in on_source:
            if row["record"] in self.on_target:
                log = (row["partition"], self._since(row))
                through[log] = max(row["offset"], through.get(log, -1))
        said = f"acknowledged by {self.source} and missing on {self.target}, which has records of that partition up to"
        for row in on_source:
            highest = through.get((row["partition"], self._since(row)), -1)
            if row["record"] not in self.on_target and row["offset"] < highest:
                yield self.source, row, f"{said} source offset {highest}"
        for row in self.acked:
            if row["cluster"] == self.target and row["record"] not in self.on_target:
                yield self.target, row, f"acknowledged by {self.target} and not there any more"

    def lost_back(self) -> Iterator[Anomaly]:
        """Missing on the cluster that was brought back."""
        for row in self._not_back():
            said = f"acknowledged by {row['cluster']} and missing on {self.target}"
            yield row["cluster"], row, f"{said}, which was brought back from {self.source}"

    def duplicated(self) -> Iterator[Anomaly]:
        """The same record at another offset of the target."""
        first: dict[tuple[str, int], str] = {}
        for row in self.landed:
            place = f"{row['partition']}@{row['offset']}"
            if row["record"] is not None and first.setdefault(row["record"], place) != place:
                yield self.target, row, f"a further copy of the record at {first[row['record']]}"

    def corrupted(self) -> Iterator[Anomaly]:
        """The bytes or the timestamp differ from what was sent."""
        sent = {row["record"]: row["digest"] for row in self.attempts}
        for row in self.landed:
            if sent.get(row["record"], row["digest"]) != row["digest"]:
                yield self.target, row, "its bytes or its timestamp are not what was sent"

    def reordered(self) -> Iterator[Anomaly]:
        """After a later record of its key, or in another order than in the source's partition."""
        acked = (row for row in self.acked if row["cluster"] == self.source)
        return self._out_of_order({row["record"]: (self._since(row), row["offset"]) for row in acked})

    def reordered_back(self) -> Iterator[Anomaly]:
        """After a later record of its key, or in another order than in the partition that it was brought back from."""
        first: dict[tuple[str, int], tuple[bool, int]] = {}
        for row in sorted(self.on_source, key=lambda each: int(each["offset"])):
            first.setdefault(row["record"], (False, row["offset"]))
        return self._out_of_order(first)

    def _out_of_order(self, source: dict[tuple[str, int], tuple[bool, int]]) -> Iterator[Anomaly]:
        """`source`: by record, whether it is in the source's log since a failback, and its offset there."""
        seen, last, highest = set(), dict[tuple[int, str], int](), dict[int, tuple[bool, int]]()
        for row in self.landed:
            if row["record"] is None or (row["partition"], row["record"]) in seen:
                continue
            seen.add((row["partition"], row["record"]))
            partition, key, offset = row["partition"], (row["partition"], row["key"]), source.get(row["record"])
            before, through = last.get(key, -1), highest.get(partition, (False, -1))
            if row["seq"] < before:
                yield self.target, row, f"comes after {row['key']}#{before} of the same key"
            elif offset is not None and offset < through:
                after = f"offset {offset[1]} on {self.source} comes after offset {through[1]} of the same partition"
                yield self.target, row, after
            last[key] = max(row["seq"], before)
            highest[partition] = max(through, offset or (False, -1))

    def nonmonotonic_poll(self) -> Iterator[Anomaly]:
        """Within one assignment, an offset at or below an earlier one."""
        last: dict[tuple[Any, ...], int] = {}
        for row in self.polls:
            place = tuple(row[name] for name in ("session", "assignment", "cluster", "partition"))
            before = last.get(place, -1)
            if row["offset"] <= before:
                yield row["cluster"], row, f"polled by {row['session']} after offset {before}"
            last[place] = max(row["offset"], before)

    def skipped_by_group(self) -> Iterator[Anomaly]:
        """The group's position is past a record of the target that it never read on either side."""
        return self._skipped_since(-math.inf)

    def skipped_back(self) -> Iterator[Anomaly]:
        """The same since the failback; earlier positions are those of a log that is gone."""
        return self._skipped_since(-math.inf if self.returned is None else self.returned["at"])

    def _skipped_since(self, since: float) -> Iterator[Anomaly]:
        stands: dict[int, int] = {}
        for row, after in [*((row, 1) for row in self.polls), *((row, 0) for row in self.positions)]:
            if row["cluster"] == self.target and row["at"] >= since:
                stands[row["partition"]] = max(row["offset"] + after, stands.get(row["partition"], 0))
        if not stands:
            raise Broken(f"the group has no position on {self.target}: it never read there")
        read = {row["record"] for row in self.polls}
        for row in self.landed:
            place = stands.get(row["partition"], 0)
            if row["record"] and row["record"] not in read and row["offset"] < place:
                yield self.target, row, f"never read, and the group's position is {place}"

    def both_sides_written(self) -> Iterator[Anomaly]:
        """Acknowledged by the source after the target's first acknowledgement and before its last."""
        times = sorted(row["acked_at"] for row in self.acked if row["cluster"] == self.target)
        for row in self.acked:
            if times and row["cluster"] == self.source and times[0] < row["acked_at"] < times[-1]:
                yield self.source, row, f"acknowledged by {self.source} while {self.target} acknowledged others"

    def position_moved_back(self) -> Iterator[Anomaly]:
        """The cluster confirmed a lower position than before."""
        stood: dict[tuple[str, int], int] = {}
        for row in sorted(self.positions, key=lambda each: float(each["at"])):
            place = (row["cluster"], row["partition"])
            if row["offset"] < stood.get(place, 0):
                yield row["cluster"], row | {"record": None}, f"lower than the earlier position {stood[place]}"
            stood[place] = max(row["offset"], stood.get(place, 0))

    def reread_beyond_plan(self) -> Iterator[Anomaly]:
        """After the failover: an offset before the stated position, or more records again than stated.

        A record counts as read again if it lies below a position that the source had confirmed before the failover's
        end.
        """
        if not self.stated:
            raise Broken("no failover stated a position of the group")
        positions, known = {row["partition"]: row for row in self.stated}, self._known_as_read()
        seen, again, found = set[tuple[int, int]](), Counter[int](), False
        for row in self._polls_after_failover():
            place, position = (row["partition"], row["offset"]), positions[row["partition"]]
            if place in seen:
                continue
            seen.add(place)
            most, said = position["reread_at_most"], None
            if row["offset"] < position["offset"]:
                said = f"read after the failover, which stated the position {position['offset']}"
            elif row["record"] in known:
                again[row["partition"]] += 1
                if most is not None and again[row["partition"]] > most:
                    said = f"read again, and the failover stated at most {most} such records"
            if said is not None:
                found = True
                yield self.target, row, said
        unbounded = sorted(partition for partition in again if positions[partition]["reread_at_most"] is None)
        if unbounded and not found:
            raise Broken(f"the failover stated no bound of what is read again in partition {unbounded[0]}")

    def _known_as_read(self) -> set[tuple[str, int] | None]:
        until, through = max(row["at"] for row in self.stated), dict[int, int]()
        for row in self.positions:
            if row["cluster"] == self.source and row["at"] <= until:
                through[row["partition"]] = max(row["offset"], through.get(row["partition"], 0))
        polls = (row for row in self.polls if row["cluster"] == self.source and row["record"] is not None)
        return {row["record"] for row in polls if row["offset"] < through.get(row["partition"], 0)}

    def _polls_after_failover(self) -> Iterator[Row]:
        since = {row["partition"]: row["at"] for row in self.stated}
        for row in self.polls:
            if row["cluster"] == self.target and row["at"] >= since.get(row["partition"], math.inf):
                yield row

    def loss_beyond_plan(self) -> Iterator[Anomaly]:
        """Of what the source had acknowledged at the failover's begin more is missing than the failover stated."""
        if self.stated_loss is None:
            raise Broken("no failover stated a loss that can be compared")
        records = self.stated_loss["records"]
        if self.stated_loss["lower_bound"]:
            raise Broken(f"the failover stated only that at least {records} records are lost")
        missing = [row for row in self._promised_before() if row["record"] not in self.on_target]
        for row in missing[records:]:
            yield self.source, row, f"missing on {self.target}, and the failover stated that {records} records are lost"

    def _promised_before(self) -> list[Row]:
        by_source = [row for row in self.acked if row["cluster"] == self.source]
        return [row for row in by_source if self.stated_loss and row["acked_at"] <= self.stated_loss["at"]]

    def stable_offset_stuck(self) -> Iterator[Anomaly]:
        """The last stable offset stays below the end of the log: the marker of a transaction is missing."""
        for row in self.ends:
            if row["stable"] < row["end"]:
                said = f"the last stable offset stays here, and the log ends at {row['end']}: a marker is missing"
                yield self.target, {"partition": row["partition"], "offset": row["stable"], "record": None}, said

    def foreign(self) -> Iterator[Anomaly]:
        """On the target, and sent by nobody."""
        sent = {row["record"] for row in self.attempts}
        for row in self.landed:
            if row["record"] is None or row["record"] not in sent:
                yield self.target, row, "no producer of this drill sent it"

    def aborted_read(self) -> Iterator[Anomaly]:
        """The group was given a record of an aborted transaction."""
        for row in self.polls:
            if row["record"] in self.aborted:
                yield row["cluster"], row, "read by the group; its transaction was aborted"

    def dirty_commit(self) -> Iterator[Anomaly]:
        """A record of an aborted transaction is among the target's committed ones."""
        for row in self.landed:
            if row["record"] in self.aborted:
                yield self.target, row, f"committed on {self.target}; its transaction was aborted"

    def torn_transaction(self) -> Iterator[Anomaly]:
        """Some records of a committed transaction are on the target, and others are not."""
        for name, rows in self.transactions.items():
            missing = [row for row in rows if row["record"] not in self.on_target]
            if missing and len(missing) < len(rows):
                said = f"of transaction {name} {self.target} lacks {len(missing)} of {len(rows)} records"
                yield missing[0]["cluster"], missing[0], said

    def measure(self) -> Row:
        """RPO and RTO as the clients saw them. Times are seconds of one monotonic clock."""
        at, sure = self.disaster_at, not {"attempts", "landed"} & self.incomplete.keys()
        sure = sure and any(r["cluster"] == self.source for r in self.acked)
        missing = [r for r in self.acked if r["cluster"] == self.source and r["record"] not in self.on_target]
        if self.returned is not None:
            sure = sure and "landed" not in self.returned["incomplete"]
            back = self._other_way(self.returned)._not_back()  # noqa: SLF001  # its own class
            here = {row["record"] for row in back}
            missing = [*(row for row in missing if row["record"] not in here), *back]
        age = None
        if sure and (not missing or at is not None):
            sent = [row["sent_at"] for row in missing]
            age = max(at, *sent) - min(sent) if sent else 0.0
        reads = [r["at"] for r in self.polls if r["cluster"] == self.target and at is not None and r["at"] >= at]
        by = {name: {r["record"] for r in self.polls if r["cluster"] == name} for name in (self.source, self.target)}
        return {
            "rpo_records": len(missing) if sure else None,
            "rpo_seconds": age,
            "rto_seconds": min(reads) - at if reads and self.moved else None,
            "acknowledged": len(self.acked),
            "unknown": sum(row["outcome"] == "unknown" for row in self.attempts),
            "landed": None if "landed" in self.incomplete else len(self.landed),
            "reread": None if "polls" in self.incomplete else len((by[self.source] & by[self.target]) - {None}),
        }


def histories(folder: Path) -> tuple[Row, list[History]]:
    """What history.json says, and the history of each link that it names.

    Raises:
        Broken: a row is of no such link, or a link is there twice.
    """
    meta = _json(folder, "history/history.json")
    rows = {
        part: [dict(zip(meta["columns"][part], row, strict=True)) for row in _lines(folder, f"history/{part}.jsonl")]
        for part in HISTORY
    }
    found = [History(each, rows) for each in meta["links"]]
    names = [each.link for each in found]
    if len({*names}) != len(names):
        raise Broken("history/history.json names a link twice")
    for part in HISTORY:
        strange = next((each["link"] for each in rows[part] if each["link"] not in names), None)
        if strange is not None:
            raise Broken(f"history/{part}.jsonl has a row of {_short(strange)}, no link of history/history.json")
    return meta, found


def measure_site(measured: dict[str, Row], moving: list[str]) -> Row:
    """All links together: the sum of records, the greatest of seconds; the RTO of those whose clients move."""
    total: Row = {
        name: _total([each[name] for each in measured.values()])
        for name in ("rpo_records", "acknowledged", "unknown", "landed", "reread")
    }
    ages = [each["rpo_seconds"] for each in measured.values()]
    times = [measured[link]["rto_seconds"] for link in moving]
    return {name: total.get(name) for name in next(iter(measured.values()))} | {
        "rpo_seconds": None if None in ages else max(ages),
        "rto_seconds": None if None in times else max(times, default=None),
    }


def _total(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


Finder = Callable[[History], Iterator[Anomaly]]
CHECKS: dict[str, tuple[Finder, set[str], set[str]]] = {
    "lost": (History.lost, {"attempts", "landed"}, {"landed"}),
    "duplicated": (History.duplicated, {"landed"}, set()),
    "corrupted": (History.corrupted, {"attempts", "landed"}, set()),
    "reordered": (History.reordered, {"attempts", "landed"}, {"landed"}),
    "nonmonotonic_poll": (History.nonmonotonic_poll, {"polls"}, set()),
    "skipped_by_group": (History.skipped_by_group, {"polls", "landed"}, {"polls"}),
    "both_sides_written": (History.both_sides_written, {"attempts"}, set()),
    "position_moved_back": (History.position_moved_back, {"polls"}, set()),
    "reread_beyond_plan": (History.reread_beyond_plan, {"polls"}, set()),
    "loss_beyond_plan": (History.loss_beyond_plan, {"attempts", "landed"}, {"landed"}),
    "foreign": (History.foreign, {"attempts", "landed"}, {"attempts"}),
    "aborted_read": (History.aborted_read, {"attempts", "polls"}, set()),
    "torn_transaction": (History.torn_transaction, {"attempts", "landed"}, {"landed"}),
    "dirty_commit": (History.dirty_commit, {"attempts", "landed"}, set()),
    "stable_offset_stuck": (History.stable_offset_stuck, {"ends"}, set()),
}
"""By check: its function, the parts of the history it needs, and those whose absence would cause false anomalies."""
BACK_CHECKS = {
    **{name: CHECKS[name] for name in ("duplicated", "corrupted", "foreign", "dirty_commit", "stable_offset_stuck")},
    "lost": (History.lost_back, *CHECKS["lost"][1:]),
    "reordered": (History.reordered_back, *CHECKS["reordered"][1:]),
    "skipped_by_group": (History.skipped_back, *CHECKS["skipped_by_group"][1:]),
}
"""Those that are made of a source that was brought back, too, by its history with source and target exchanged."""


# -- 5: a drill: its result follows from its files, and evidence.json from both --------------------------------------


class Drill:
    """The kept files of a drill: its experiment, who ran it, its result, and the recordings of its clients.

    Everything except for the outcomes, reasons and times of its steps and of its steady state is computed again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        experiment = _json(folder, "experiment.json")
        self.experiment, self.lines = experiment["experiment"], experiment["lines"]
        self.origin, self.result = _json(folder, "origin.json"), _json(folder, "result.json")
        self.steps, self.steady = self.result["steps"], self.result["steady_state"]
        meta, self.histories = histories(folder)
        self.interrupted = meta["interrupted"]
        self.links = {f"{each['source']}->{each['target']}": each for each in self.experiment["lab"]["links"]}
        if [each.link for each in self.histories] != [*self.links]:
            raise Broken(f"history/history.json is not of the links of experiment.json: {', '.join(self.links)}")
        self.workloads = {step["link"]: step for step in self.experiment["method"] if step["do"] == "workload"}
        self.moving = [each.link for each in self.histories if self._clients_move(each)]
        self.checks = [each.judge(name) for each in self.histories for name in self._checks_of(each.link)]
        self.by_link = {each.link: each.measure() for each in self.histories}
        self.measured = measure_site(self.by_link, self.moving)
        limits = self.experiment["objectives"]
        self.objectives = [
            _objective(name, limits[name], self.measured) for name in OBJECTIVES if limits[name] is not None
        ]
        files = sorted((folder / "journal").glob("*.jsonl"))
        self.journals = {file.stem: _lines(folder, journal_of(file.stem)) for file in files}

    def _clients_move(self, history: History) -> bool:
        """Whether the experiment moves the link's clients to its target."""
        steps = (each for step in self.experiment["method"] for each in _steps_in(step))
        return any(
            (s["do"], s.get("link"), s.get("to")) == ("move_clients", history.link, history.target) for s in steps
        )

    def _checks_of(self, link: str) -> list[str]:
        """The checks of a link: those of moved clients only where its clients move, if any link's do."""
        judged = not self.moving or link in self.moving
        return [name for name in self.experiment["checks"] if judged or name not in MOVED_CHECKS]

    def verdict(self) -> tuple[str, int, list[str]]:
        """Verdict, exit code and reasons: refuted outweighs unseen, which outweighs a missed objective."""
        named = [(step, f"{step['step']} (line {step['line']})") for step in self.steps]
        refuted = [f"{name} failed: {step['reason']}" for step, name in named if _refutes(step)]
        refuted += [f"{named_check(c)}: {_anomalies(c['anomalies'])}" for c in self.checks if c["outcome"] == "failed"]
        unseen = [] if self.interrupted is None else [self.interrupted]
        if self.steady["reached"] is False:
            unseen.append(f"the steady state was not reached: {self.steady['reason']}")
        unseen += [f"{name}: {step['reason']}" for step, name in named if _leaves_unknown(step)]
        unseen += [
            f"{named_check(c)} couldn't be checked: {c['reason']}" for c in self.checks if c["outcome"] == "unknown"
        ]
        unseen += [f"{o['name']} couldn't be measured" for o in self.objectives if o["outcome"] == "unknown"]
        missed = [
            f"{o['name']} is {_number(o['measured'])}, the objective is {_number(o['objective'])}"
            for o in self.objectives
            if o["outcome"] == "missed"
        ]
        left = [
            f"rollback {name} failed: {step['reason']}"
            for step, name in named
            if step["section"] == "rollbacks" and step["outcome"] in ("failed", "unknown")
        ]
        if refuted:
            return "failed", 1, [*refuted, *missed, *unseen, *left]
        if unseen:
            return "unknown", 8, [*unseen, *missed, *left]
        if missed:
            return "failed", 6, [*missed, *left]
        return ("unknown", 8, left) if left else ("passed", 0, [])

    def problems(self) -> Iterator[str]:
        """The differences between result.json and what the experiment, the raw histories and the journals give."""
        verdict, code, reasons = self.verdict()
        ours = {
            "title": self.experiment["title"],
            "hypothesis": self.experiment["hypothesis"].strip(),
            "verdict": verdict,
            "exit_code": code,
            "reasons": reasons,
            "checks": self.checks,
            "objectives": [{name: o[name] for name in o if name != "reason"} for o in self.objectives],
            "measured": self.measured,
        }
        for name, value in ours.items():
            yield from differences(f"{name} of result.json", self.result.get(name), value, "the raw histories give")
        said = [{name: each[name] for name in each if name != "failover"} for each in self.result["links"]]
        yield from differences("links of result.json", said, [*self._links()], "the experiment and raw histories give")
        yield from self.step_problems()
        yield from self.branch_problems()
        yield from self.strike_problems()
        yield from self.time_problems()
        yield from self.stated_problems()
        yield from self.run_problems()

    def _links(self) -> Iterator[Row]:
        """What result.json says of each link, without the failover's document."""
        for history in self.histories:
            link, spec = history.link, self.links[history.link]
            topic = self.workloads[link]["topic"]
            renamed = f"{spec['source']}.{topic}" if spec["policy"] == "prefix" else topic
            named = {"link": link, "topic": topic, "target_topic": renamed, "group": self.workloads[link]["group"]}
            yield named | {"moved": history.moved, "measured": self.by_link[link]}

    def step_problems(self) -> Iterator[str]:
        """The steps are those of the experiment, in its order; those after one that didn't succeed are skipped."""
        method = self._of_method()
        rollbacks = [step for step in self.steps if step["section"] == "rollbacks"]
        if [*method, *rollbacks] != self.steps:
            yield "result.json has a rollback before a step of the method"
        for part, played in (("method", method), ("rollbacks", rollbacks)):
            both = zip(self.experiment[part], self.lines[part], strict=True)
            planned = [(describe(step), line) for step, line in both]
            said = [(step["step"], step["line"]) for step in played]
            if said != planned[: len(said)] or (len(said) < len(planned) and self.interrupted is None):
                yield f"The steps of result.json are {_short(said)}, and the experiment has {_short(planned)} ({part})"
        disturbs = (
            number
            for number, step in enumerate(self.experiment["method"])
            if any(each["do"] in DISTURBANCES for each in _steps_in(step))
        )
        disturbance, stopped = next(disturbs, math.inf), False
        for number, step in enumerate(method):
            stopped = stopped or (number >= disturbance and self.steady["reached"] is not True)
            skipped = step["outcome"] == "skipped"
            if skipped != stopped:
                what = "is skipped, although all before it succeeded"
                what = what if skipped else "was played after one that did not succeed"
                yield f"Step {step['step']} (line {step['line']}) of result.json {what}"
            if (step["section"] == "setup") != (number < disturbance and not skipped):
                yield f"Step {step['step']} (line {step['line']}) of result.json is in another section"
            stopped = stopped or step["outcome"] != "ok"

    def branch_problems(self) -> Iterator[str]:
        """The branches of parallel steps are the experiment's; each was played in order, within its parallel step."""
        plans = zip(self.experiment["method"], self.lines["branches"], self._of_method(), strict=False)
        for planned, lines, step in plans:
            name, branches = f"{step['step']} (line {step['line']})", step.get("branches", [])
            both = zip(planned.get("branches", ()), lines, strict=True)
            words = [
                [(describe(each), line) for each, line in zip(branch, places, strict=True)] for branch, places in both
            ]
            said = [[(each["step"], each["line"]) for each in branch] for branch in branches]
            if said != words:
                yield f"The branches of {name} of result.json are {_short(said)}, planned are {_short(words)}"
            outcomes = {each["outcome"] for each in _steps_in(step)} if branches else {"ok"}
            worst = "failed" if "failed" in outcomes else "ok" if outcomes == {"ok"} else "unknown"
            if branches and step["outcome"] != worst and not (step["outcome"] == "skipped" and outcomes == {"skipped"}):
                yield f"Step {name} of result.json is {step['outcome']}, and its branches are {worst}"
            for branch in branches:
                yield from _branch_problems(name, step, branch)

    def strike_problems(self) -> Iterator[str]:
        """The faults at stages are the experiment's and struck within their step, all of them if the step ended ok."""
        plans = zip(self.experiment["method"], self._of_method(), strict=False)
        pairs = [pair for both in plans for pair in zip(*map(_steps_in, both), strict=False)]
        for planned, step in pairs:
            name = f"{step['step']} (line {step['line']})"
            words = [
                f"{describe(fault)} at {planned['do']} {strike['at']}"
                for strike in planned.get("strikes", ())
                for fault in strike["faults"]
            ]
            strikes = step.get("strikes", [])
            said = [each["step"] for each in strikes]
            if said != words and (said or step["outcome"] not in ("skipped", "unknown")):
                yield f"The faults at stages of {name} of result.json are {_short(said)}, planned are {_short(words)}"
            if step["outcome"] == "ok" and any(each["outcome"] != "ok" for each in strikes):
                yield f"Step {name} of result.json is ok, although not every fault at its stages struck"
            for each in strikes:
                after, began = each["started_after_seconds"], step["started_after_seconds"]
                if after is None:
                    continue
                ends = after + each["seconds"] - CLOCKS
                if began is None or after < began - CLOCKS or ends > began + step["seconds"] + CLOCKS:
                    yield f"{each['step']} of result.json struck outside of its step {name}"

    def _of_method(self) -> list[Row]:
        return [step for step in self.steps if step["section"] != "rollbacks"]

    def time_problems(self) -> Iterator[str]:
        """Steps don't overlap, the disaster is at the first fault, and nothing was recorded outside of the drill."""
        before, began, ends = 0.0, self.origin["began"], self.result["seconds"] + CLOCKS
        for step in self.steps:
            after, name = step["started_after_seconds"], f"{step['step']} (line {step['line']})"
            if (after is None) != (step["outcome"] == "skipped"):
                yield f"Step {name} of result.json was skipped and has a time, or was played and has no time"
            elif after is not None:
                if after < before - CLOCKS or after + step["seconds"] > ends:
                    yield f"Step {name} of result.json overlaps another one, or the end of the drill"
                before = after + step["seconds"]
        for history in self.histories:
            yield from self._link_time_problems(history, began, ends)

    def _link_time_problems(self, history: History, began: float, ends: float) -> Iterator[str]:
        at, of = history.disaster_at, of_link(history.link)
        played = (each for step in self.steps for each in _by_start(step))
        first = next((each for each in played if _is_disaster(each["step"], history)), None)
        if first is None:
            fits = at is None
        else:
            struck = began + first["started_after_seconds"]
            fits = at is not None and struck - CLOCKS <= at <= struck + first["seconds"] + CLOCKS
        if not fits and (self.interrupted is None or at is not None):
            what = f"history/history.json has a disaster{of} at {at}"
            yield f"{what}, which is not that of the first fault in result.json"
        moved = self._moved(history)
        if moved is not None and moved != history.moved:
            said, by_steps = _short(not moved), _short(moved)
            yield f"history/history.json says moved{of}: {said}, and the steps of result.json {by_steps}"
        yield from self._returned_problems(history)
        for part, times in history.times().items():
            outside = [at for at in times if not began - CLOCKS <= at <= began + ends]
            if outside:
                file = "history.json" if part in ("stated", "returned") else f"{part}.jsonl"
                yield f"history/{file} has a time outside of the drill: {outside[0]}"

    def _returned_problems(self, history: History) -> Iterator[str]:
        """A link is brought back by a failback that succeeded, as of its end, unless a later failover moved it again.

        A move that proved nothing about a fault at its stages (unknown) may have succeeded.
        """
        at, of = None if history.returned is None else history.returned["at"], of_link(history.link)
        away, backs = False, list[Row | None]([None])
        for step in (each for played in self.steps for each in _steps_in(played)):
            sure, may = step["outcome"] == "ok", step["outcome"] in ("ok", "unknown")
            if _moves(step["step"], history) and may:
                away, backs = True, [None, *(() if sure else backs)]
            elif may and away and _returns(step["step"], history):
                away, backs = not sure, [step, *(() if sure else backs)]
            elif sure and step["step"].startswith("reprotect") and _names(step["step"], history):
                away = False
        if not any(self._ended_at(step, at) for step in backs) and (self.interrupted is None or at is not None):
            what = f"history/history.json says returned{of} at {at}"
            yield f"{what}, which is not the end of a failback of it in result.json"

    def _ended_at(self, step: Row | None, at: float | None) -> bool:
        """Whether a step ended at a time; None: no step, at no time."""
        if step is None or at is None:
            return step is None and at is None
        began = self.origin["began"] + step["started_after_seconds"]
        return bool(began - CLOCKS <= at <= began + step["seconds"] + CLOCKS)

    def _moved(self, history: History) -> bool | None:
        """Whether a link's clients were moved after a failover that succeeded; None: a step of it didn't end well."""
        over, moved = False, False
        for step in (each for played in self.steps for each in _steps_in(played)):
            if _moves(step["step"], history):
                over = step["outcome"] == "ok"
            elif step["step"] == _move_of(history) and step["outcome"] != "skipped":
                if step["outcome"] != "ok":
                    return None
                moved = over
        return moved

    def stated_problems(self) -> Iterator[str]:
        """The positions that the failovers stated are those of their documents, as of their ends."""
        played = [each for step in self.steps for each in _steps_in(step) if each["outcome"] != "skipped"]
        documents = {each["link"]: each["failover"] for each in self.result["links"]}
        for history in self.histories:
            mine = [step for step in played if _moves(step["step"], history)]
            last = mine[-1] if mine else None
            yield from self._stated_problems(history, last, documents.get(history.link))
            yield from self._stated_loss_problems(history, mine, documents.get(history.link))
            if last is None and documents.get(history.link) is not None:
                yield f"links of result.json has a failover of {history.link}, and no step moved it"
        moves = [[each.link for each in self.histories if _moves(step["step"], each)] for step in played]
        moved, told = next((links for links in moves[::-1] if links), []), self.result["failover"]
        if not moved:
            yield from differences("failover of result.json", told, None, "links of it gives")
        for link in moved:
            part, ours = _part_of(told, link), documents.get(link)
            yield from differences("failover of result.json", part, ours, "links of it gives")
        if told is not None and "links" in told:
            yield from _sum_problems(told)

    def _stated_problems(self, history: History, last: Row | None, told: Row | None) -> Iterator[str]:
        workload, of = self.workloads[history.link], of_link(history.link)
        rows = (told or {}).get("groups", []) if last and last["outcome"] == "ok" else []
        mine = [row for row in rows if all(row[name] == workload[name] for name in ("group", "topic"))]
        placed = [row for row in mine if row["target_offset"] is not None]
        ours = [{name: row[member] for name, member in STATED} for row in placed]
        stated = history.stated
        said = [{name: row[name] for name, _ in STATED} for row in stated]
        if said or self.interrupted is None:
            give = "the failover of result.json gives"
            yield from differences(f"stated positions{of} of history/history.json", said, ours, give)
        if last is None or last["started_after_seconds"] is None:
            return
        began = self.origin["began"] + last["started_after_seconds"]
        for row in (*stated, *([history.stated_loss] if history.stated_loss else [])):
            if not began - CLOCKS <= row["at"] <= began + last["seconds"] + CLOCKS:
                yield f"history/history.json has a statement at {row['at']}, which is outside of the failover"

    def _stated_loss_problems(self, history: History, moves: list[Row], told: Row | None) -> Iterator[str]:
        """The stated loss is that of the failover's document, if it is the only one of the link and succeeded."""
        topic, rows = self.workloads[history.link]["topic"], (told or {}).get("lost_by_topic", [])
        lost = next((row["records"] for row in rows if row["topic"] == topic), None)
        ours = None
        if told and lost is not None and [step["outcome"] for step in moves] == ["ok"]:
            ours = {"records": lost, "lower_bound": told["evidence"]["rpo_lower_bound"]}
        said = history.stated_loss and {name: history.stated_loss[name] for name in ("records", "lower_bound")}
        if said or self.interrupted is None:
            name = f"stated loss{of_link(history.link)} of history/history.json"
            yield from differences(name, said, ours, "the failover of result.json gives")

    def run_problems(self) -> Iterator[str]:
        """The journals are of the listed runs, on the drill's clusters; the failover's document agrees with its own."""
        missing = self.origin["journals_missing"]
        kinds = {*PATHS} - {"rehearsal"}
        listed = {row["run"] for row in _lines(self.folder, "runs.jsonl") if row["kind"] in kinds}
        if missing is None and listed != self.journals.keys():
            names = ", ".join(sorted(listed ^ self.journals.keys()))
            yield f"The journals of the drill are not those of the runs that runs.jsonl lists: {names}"
        ids = {each["alias"]: each["cluster_id"] for each in self.origin["clusters"] or ()}
        for run, entries in self.journals.items():
            _, first = next(events(entries), (None, None))
            plan = first.get("plan", {}) if isinstance(first, dict) else {}
            for view in (plan.get(role) for role in ("source", "live", "target")):
                if view and view["cluster_id"] not in (None, ids.get(view["alias"])):
                    yield f"origin.json has another cluster {view['alias']} than the journal of {run}"
        for history, told in zip(self.histories, self.result["links"], strict=False):
            inner = (told["failover"] or {}).get("run")
            if inner is not None and missing is None:
                yield from self._failover_problems(history, told["failover"], inner)

    def _failover_problems(self, history: History, told: Row, inner: str) -> Iterator[str]:
        """The failover that moved a link agrees with the journal of its run."""
        if inner not in self.journals:
            yield f"The failover of result.json is run {inner}, whose journal is not in the bundle"
            return
        played = (each for step in self.steps for each in _steps_in(step))
        moves = [step for step in played if _moves(step["step"], history)]
        ended = bool(moves) and moves[-1]["outcome"] == "ok"
        # a failback in the drill counts the loss later, so the failover's document could not know it
        before = [entry for entry in self.journals[inner] if entry["event"] != "audited"]
        yield from document_problems("the failover of result.json", told, before, ended=ended)
        _, first = next(events(self.journals[inner]))
        source = first["plan"]["source"]["alias"]
        if source != history.source:
            yield f"The failover of {history.link} in result.json is run {inner}, which moved groups away from {source}"
        if ended and run_judgement(self.journals[inner])["state"] != "closed":
            yield f"Step {moves[-1]['step']} of result.json is ok, but the journal of {inner} does not reach its end"

    def document(self, run: str, drills: list[Row]) -> Row:
        """The part of evidence.json that follows from these files and the chain of drills (its payloads)."""
        result, origin = self.result, self.origin
        verdict, _, reasons = self.verdict()
        happened = list(self._played_steps())
        return {
            "title": result["title"],
            "state": "ended",
            "verdict": verdict,
            "reasons": reasons,
            **{name: result[name] for name in ("started_at", "ended_at", "seconds")},
            "what": {
                "link": ", ".join(self.links),
                **dict.fromkeys(("mode", "plan", "plan_digest")),
                "experiment": "experiment.yaml",
                "hypothesis": result["hypothesis"],
                "result": "result.json",
                "stages": [],
            },
            "drkit.version": origin["drkit"],
            "configuration": {
                "digest": origin["configuration_digest"],
                "links": [*self.links],
                "objectives": {each["name"]: each["objective"] for each in self.objectives},
            },
            "clusters": origin["clusters"],
            "who.operator": origin["operator"],
            "who.taken_over_by": [],
            "assumptions": list(self._assumptions()),
            "timeline": {
                "events": [_event(each, result["started_at"], fault=fault) for each, fault in happened],
                "faults": [
                    {"what": step["step"], "seconds": step["started_after_seconds"], "outcome": step["outcome"]}
                    for step, fault in happened
                    if fault
                ],
                "series": self.series(),
            },
            "steps": [_played(step) for step in self.steps],
            "measured": self.measured,
            "links": [*self._links()],
            "objectives": self.objectives,
            "checks": self.checks,
            "groups": None,
            "deviations": list(self._deviations()),
            "journals": [self._journal(name) for name in self.journals],
            "journals_missing": origin["journals_missing"],
            "trend": trend_of(run, drills),
        }

    def _played_steps(self) -> Iterator[tuple[Row, bool]]:
        """Each step, followed by those of its branches and the faults at its stages; and whether it is a fault of the
        method."""
        for each in self.steps:
            for step in (each, *(_by_start(each) if each.get("branches") else ())):
                method = step["section"] == "method"
                yield step, method and _fault_of(step["step"]) is not None
                for strike in step.get("strikes", ()):
                    yield strike, method

    def _assumptions(self) -> Iterator[str]:
        lab = self.origin["lab"]
        if lab is not None:
            nodes = ", ".join(lab["nodes"])
            yield f"Played on a lab of one machine ({lab['machine']}): {nodes}; its network is loopback"
        yield "Producer, consumer and bystander are plain confluent-kafka clients, with the workload of the file"
        on = " or ".join(dict.fromkeys(each.source for each in self.histories))
        yield f"All times are of one machine's monotonic clock; the recovery time counts from the first fault on {on}"
        if self.steady["reached"] is not True:
            yield f"The steady state was not seen before the disturbance: {self.steady['reason']}"

    def _deviations(self) -> Iterator[str]:
        for step in self.steps:
            if step["outcome"] != "ok":
                yield f"{step['step']} (line {step['line']}) ended {step['outcome']}: {step['reason']}"
        if self.steady["reached"] is False:
            yield f"the steady state was not reached: {self.steady['reason']}"

    def _journal(self, run: str) -> Row:
        entries = self.journals[run]
        problem = chain_problem(run, entries)
        places = _json(self.folder, "anchors.json")["places"]
        heads = [each["seq"] for place in places for each in place["anchors"] or () if each["run"] == run]
        return {
            "run": run,
            "file": journal_of(run),
            "entries": len(entries),
            "head": entries[-1]["hash"] if entries else None,
            "chain": "holds" if problem is None else "broken",
            "verdict": problem or "every hash fits",
            "anchored_through": max(heads, default=None),
        }

    def series(self) -> list[Row]:
        """Acknowledged and read records per second, the group's lag, the mirror's lag. `points`: None for none."""
        return [each for history in self.histories for each in self._series_of(history)]

    def _series_of(self, history: History) -> list[Row]:
        began, of, found = self.origin["began"], of_link(history.link), list[Row]()
        for cluster in (history.source, history.target):
            acks = [row["acked_at"] - began for row in history.acked if row["cluster"] == cluster]
            reads = [row["at"] - began for row in history.polls if row["cluster"] == cluster]
            found.append(_rate(f"acknowledged by {cluster}{of}", acks))
            found.append(_rate(f"read on {cluster}{of}", reads))
            if cluster == history.source:
                found.append(_backlog(f"the group's lag on {cluster}{of}", acks, reads))
        began_at = datetime.fromisoformat(self.result["started_at"])
        lag = [
            [round((datetime.fromisoformat(row["at"]) - began_at).total_seconds(), 1), row["lag_records"]]
            for row in history.lag
        ]
        found.append({"name": f"{MIRROR_LAG}{of}", "unit": "records", "points": _thinned(lag)})
        return found


def drill_document(folder: Path, run: str, drills: list[Row]) -> Row:
    """The required content of a drill's evidence.json (`Drill.document`), if its result follows from its files."""
    drill = Drill(folder)
    problems = list(drill.problems())
    if drill.result["run"] != run:
        problems.append(f"result.json is of {_short(drill.result['run'])}, not of {run}")
    if problems:
        raise Broken(*problems)
    return drill.document(run, drills)


def describe(step: Row) -> str:  # noqa: PLR0911, C901  # one arm a step
    """A step's short description."""
    what: str = step["do"]
    match what:
        case "kill" | "pause" | "resume" | "restart" | "fill_disk" | "disconnect":
            return f"{what} {step['node']}"
        case "failover":
            return f"failover{_of_links(step)} to {step['to']}"
        case "failback":
            to = "" if step["to"] is None else f" to {step['to']}"
            return f"failback{_of_links(step)}{to}"
        case "reprotect":
            return f"reprotect{_of_links(step)}"
        case "workload":
            return f"workload{of_link(step['link'])}"
        case "hold":
            return f"hold {step['seconds']:g} s"
        case "move_clients":
            return f"move clients{of_link(step['link'])} to {step['to']}"
        case "stop_clients":
            return f"stop {'clients' if step['who'] == 'both' else step['who']}{of_link(step['link'])}"
        case "wait":
            return f"wait until {step['until']['condition']}{of_link(step['until'].get('link'))}"
        case "load":
            return f"load {step['dataset']}"
        case "parallel":
            return f"in parallel: {' | '.join(', '.join(map(describe, branch)) for branch in step['branches'])}"
    if what in CLUSTER_FAULTS:
        return f"{what.replace('_', ' ')} on {step['cluster']}"
    return what


def _steps_in(step: Row) -> list[Row]:
    """A step, planned or played; of a parallel the steps of its branches."""
    return [each for branch in step.get("branches", ()) for each in branch] or [step]


def _by_start(step: Row) -> list[Row]:
    """As `_steps_in`, without those that never began, by the time of their start."""
    began = [each for each in _steps_in(step) if each["started_after_seconds"] is not None]
    return sorted(began, key=lambda each: float(each["started_after_seconds"]))


def _branch_problems(name: str, parallel: Row, branch: list[Row]) -> Iterator[str]:
    """The steps of a branch don't overlap, lie within their parallel step, and end with one that did not succeed."""
    began, stopped = parallel["started_after_seconds"], False
    before = began or 0.0
    ends = before + parallel["seconds"] + CLOCKS
    for step in branch:
        after, what = step["started_after_seconds"], f"{step['step']} (line {step['line']}) of result.json"
        if (after is None) != (step["outcome"] == "skipped"):
            yield f"Step {what} was skipped and has a time, or was played and has no time"
        elif after is not None:
            if began is None or after < before - CLOCKS or after + step["seconds"] > ends:
                yield f"Step {what} overlaps another one of its branch, or the end of {name}"
            before = after + step["seconds"]
            if stopped:
                yield f"Step {what} was played after one of its branch that did not succeed"
        stopped = stopped or step["outcome"] != "ok"
        if step["section"] != parallel["section"]:
            yield f"Step {what} is in another section than {name}"


def _fault_of(step: str) -> tuple[str, str] | None:
    """The fault that a step's description names, and its target; None: it is not a fault."""
    what, _, node = step.partition(" ")
    if what in NODE_FAULTS:
        return what, node
    what, _, cluster = step.partition(" on ")
    what = what.replace(" ", "_")
    return (what, cluster) if what in CLUSTER_FAULTS else None


def of_link(link: str | None) -> str:
    """How a description names a link; nothing for the default one."""
    return "" if link in (None, DEFAULT_LINK) else f" of {link}"


def named_check(judged: Row) -> str:
    """A check, in a drill with its link."""
    return f"{judged['check']}{of_link(judged.get('link'))}"


def _sum_problems(told: Row) -> Iterator[str]:
    """The numbers of a failover of several links are those of its links: records add up, of seconds the greatest."""
    numbers = [each["evidence"] for each in told["links"] if each["evidence"] is not None]
    for name, taken in (("rpo_records", sum), ("rpo_seconds", max), ("rto_seconds", max)):
        values = [each[name] for each in numbers]
        ours = None if None in values or not values else taken(values)
        yield from differences(f"{name} of the failover of result.json", told["evidence"][name], ours, "its links give")


def _of_links(step: Row) -> str:
    return f" of {', '.join(step['links'])}" if step["links"] else ""


def _moves(step: str, history: History) -> bool:
    """Whether a step with this description is a failover that moves the link: it names the link, or none."""
    what, named, links = step.removesuffix(f" to {history.target}").partition(" of ")
    return (
        what == "failover"
        and step.endswith(f" to {history.target}")
        and (not named or history.link in links.split(", "))
    )


def _names(step: str, history: History) -> bool:
    """Whether a failback or reprotect with this description concerns the link: it names the link, or none."""
    _, named, links = step.partition(" to ")[0].partition(" of ")
    return not named or history.link in links.split(", ")


def _returns(step: str, history: History) -> bool:
    """Whether a step with this description is a failback that brings the link back, if it is failed over."""
    _, to, cluster = step.partition(" to ")
    mine = not to or cluster == history.source
    return step.partition(" ")[0] == "failback" and mine and _names(step, history)


def _part_of(told: Row | None, link: str) -> Row | None:
    """A link's part of the document of a failover; that of a site run lists what is its own, and rows of all links."""
    if told is None or "links" not in told:
        return told
    own: Row | None = next((each for each in told["links"] if each["link"] == link), None)
    if own is None:
        return None
    lists = (name for name in SITE_LISTS if name not in own)
    return own | {name: [row for row in told.get(name, ()) if row["link"] == link] for name in lists}


def _move_of(history: History) -> str:
    return f"move clients{of_link(history.link)} to {history.target}"


def _is_disaster(step: str, history: History) -> bool:
    """Whether a link's RPO and RTO count from this step, if it is the first such one."""
    return is_disaster_of(step, history.source) or _moves(step, history)


def is_disaster_of(step: str, source: str) -> bool:
    """Whether a step is a fault that counts as a disaster of the links from a cluster."""
    fault, on = _fault_of(step) or ("", "")
    return on.partition("-")[0] == source and fault in DISASTERS


def _refutes(step: Row) -> bool:
    return bool(step["section"] == "method" and step["outcome"] == "failed")


def _leaves_unknown(step: Row) -> bool:
    untested = step["section"] == "setup" and step["outcome"] == "failed"
    return bool(untested or (step["section"] != "rollbacks" and step["outcome"] == "unknown"))


def _event(step: Row, started_at: str, *, fault: bool) -> Row:
    after = step["started_after_seconds"]
    at = None if after is None else _iso(datetime.fromisoformat(started_at) + timedelta(seconds=after))
    return {
        "at": at,
        "seconds": after,
        "what": step["step"],
        "fault": fault,
        "outcome": step["outcome"],
        "detail": step["reason"],
    }


def _played(step: Row) -> Row:
    after = step["started_after_seconds"]
    return {
        "name": step["step"],
        **{name: step[name] for name in ("section", "outcome", "reason", "seconds")},
        "ended_after_seconds": None if after is None else round(after + step["seconds"], 3),
        "attempts": 0 if step["outcome"] == "skipped" else 1,
    }


def _rate(name: str, times: list[float]) -> Row:
    counted = Counter(int(each) for each in times)
    seconds = range(min(counted), max(counted) + 1) if counted else range(0)
    return {"name": name, "unit": "records/s", "points": _thinned([[second, counted[second]] for second in seconds])}


def _backlog(name: str, written: list[float], read: list[float]) -> Row:
    changes = Counter(int(each) for each in written)
    changes.subtract(int(each) for each in read)
    level, points = 0, list[list[float]]()
    for second in sorted(changes):
        level += changes[second]
        points.append([second, max(0, level)])
    return {"name": name, "unit": "records", "points": _thinned(points)}


def _thinned(points: list[list[float]]) -> list[list[float]] | None:
    """At most as many points as a chart shows, including the last one; None: there are none."""
    thinned = points[:: max(1, -(-len(points) // 600))]
    if not points:
        return None
    return thinned if thinned[-1] == points[-1] else [*thinned, points[-1]]


def _anomalies(count: int | None) -> str:
    return "1 anomaly" if count == 1 else f"{count} anomalies"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


LIKE_BEFORE, ENOUGH, TREND_SHOWN = 1.25, 2, 50
"""The factor by which a time may exceed the worst of the earlier passed drills without being a regression (machines
differ); how many such drills a comparison needs; and how many drills the trend shows."""


def trend_of(run: str, drills: list[Row]) -> Row | None:
    """The drills in the chain with the title of `run`, up to it, each with its regressions; None: it is the first one.

    A regression is a verdict that isn't passed after a passed one, an RPO in records above those of all earlier passed
    drills, or a recovery time above theirs by more than a quarter.
    """
    number = next((number for number, each in enumerate(drills) if each["run"] == run), None)
    if number is None:
        raise Broken(f"Drill {run} is not in the chain of drills")
    title, last = drills[number]["title"], dict[str, Any]()
    rows, passed = list[Row](), list[Row]()
    for each in drills[: number + 1]:
        if each["title"] != title:
            continue
        row = {name: each[name] for name in ("run", "started_at", "verdict")} | each["measured"]
        rows.append(row | {"regressions": list(_regressions(row, last, passed))})
        last = row
        passed += [row] if row["verdict"] == "passed" else []
    if len(rows) == 1:
        return None
    return {"experiment": title, "drills": rows[-TREND_SHOWN:], "left_out": max(0, len(rows) - TREND_SHOWN)}


def _regressions(drill: Row, last: Row, passed: list[Row]) -> Iterator[str]:
    if last.get("verdict") == "passed" and drill["verdict"] != "passed":
        yield f"the verdict is {drill['verdict']}, but {last['run']} passed"
    if len(passed) < ENOUGH:
        return
    lost, took = drill["rpo_records"], drill["rto_seconds"]
    records = [each["rpo_records"] for each in passed if each["rpo_records"] is not None]
    if records and lost is not None and lost > max(records):
        yield f"{lost:,} record{'' if lost == 1 else 's'} lost, at most {max(records):,} in earlier drills that passed"
    times = [each["rto_seconds"] for each in passed if each["rto_seconds"] is not None]
    if times and took is not None and took > LIKE_BEFORE * max(times):
        yield f"recovery took {took:.1f} s, at most {max(times):.1f} s in earlier drills that passed"


def _step(name: str) -> Row:
    unended = {"outcome": "unknown", "reason": NOT_ENDED, "seconds": None, "ended_after_seconds": None}
    return {"name": name, **unended, "attempts": 0}


def seconds_between(start: str, end: str) -> float:
    """Seconds from one instant to another, to the millisecond; never negative."""
    return round(max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()), 3)


def _json(folder: Path, name: str) -> Any:
    return next(_read(folder, name, lambda text: [text]))


def _lines(folder: Path, name: str) -> list[Any]:
    return list(_read(folder, name, lambda text: [line for line in text.split("\n") if line]))


def _read(folder: Path, name: str, parts: Callable[[str], list[str]]) -> Iterator[Any]:
    try:
        yield from map(_load, parts(_inside(folder, name).read_text(encoding="utf-8")))
    except ValueError as error:
        raise Broken(f"{name} can't be read: {error}") from None


def _inside(folder: Path, name: str) -> Path:
    """A file of the bundle, so a signed one. Refuses a name that leads outside."""
    if name.startswith("/") or {"", ".", ".."} & {*name.split("/")}:
        raise Broken(f"{_short(name)} is not a file of the bundle")
    return folder / name


def _load(text: str) -> Any:
    """Unambiguous JSON: no member twice, no NaN, no infinity."""
    return json.loads(text, object_pairs_hook=_members, parse_constant=_parse_finite, parse_float=_parse_finite)


def _members(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member of a JSON object is there twice")
    return found


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number in JSON")
    return number


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 5 and 5.0 are, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return bool(one == other and (numbers or type(one) is type(other)))


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def is_inside(folder: Path, file: Path) -> bool:
    """Whether a file is in the bundle: a key in the bundle proves nothing about who signed."""
    return file.resolve().is_relative_to(folder.resolve())


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Verify an evidence bundle of drkit, without drkit.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--anchors", type=Path, help="heads of journals, from a place that the signer can't write to")
    parser.add_argument("--key", type=Path, help="the public key (PEM) that must have signed it")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    try:
        trusted = None if options.key is None else options.key.read_bytes()
    except OSError as error:
        parser.error(f"{options.key} can't be read: {error.strerror}")
    try:
        anchors = None if options.anchors is None else read_anchors(options.anchors)
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"{options.anchors} can't be read: {error}")
    own_key = options.key is not None and is_inside(options.folder, options.key)
    found = verify(options.folder, trusted, own_key=own_key, anchors=anchors)
    for problem in found.problems:
        sys.stdout.write(f"refused: {problem}\n")
    if not found.problems:
        sys.stdout.write(f"verified: {found.kind} {found.run}, verdict {found.verdict}, signed by key {found.key}\n")
        sys.stdout.write("".join(f"  {line}\n" for line in found.shown))
    for note in found.notes:
        sys.stdout.write(f"note: {note}\n")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
