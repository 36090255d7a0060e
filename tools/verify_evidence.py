#!/usr/bin/env python3
"""Verify an evidence bundle of drkit, without drkit: python3 verify_evidence.py DIR [--key KEY.pub] [--anchors FILE]

Needs the standard library and `cryptography`, nothing else. What is checked, in this order:

1. statement.dsse.json is a DSSE envelope (payload type in-toto) with one Ed25519 signature that holds.
2. The in-toto statement names every file of the folder with its SHA-256, and no file is missing, added or changed.
3. Each journal is a hash chain without gaps, and every head that was anchored elsewhere is in it.
   No run that was anchored is missing from the list of runs; no drill is missing from the chain of drills.
4. The verdicts are computed anew: a run's from its journal, a drill's from what its clients recorded.

Exit code 0: the bundle is what was signed, and its verdicts follow from its raw data. 1: it is refused; each line says
why. 2: usage. Without --key the signature is checked against the key in the bundle, which shows that nothing was
changed since, not who signed: get the public key by another way, and give it. Without --anchors the heads of
journals are those in the bundle: who has the key can have made them. FILE is the operator's file of anchors, or the
records of the topic __drkit_journal, a line each: get it by another way, too.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ENVELOPE, EVIDENCE, PUBLIC_KEY = "statement.dsse.json", "evidence.json", "public-key.pem"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:drkit:evidence:v1"
SHOWN = 160
RUN_NAME, KEY_ID = re.compile(r"[A-Za-z0-9-]+"), re.compile(r"[0-9a-f]{64}")
Row = dict[str, Any]


class Broken(Exception):
    """The bundle is refused; the arguments are sentences."""


@dataclass
class Verified:
    """`problems` is empty where the bundle holds; `notes` say what it can't show."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    run: str | None = None
    kind: str | None = None
    verdict: str | None = None
    key: str | None = None
    shown: list[str] = field(default_factory=list)
    """Of which run, export and chain it is: what a replay of an older bundle, or of a shorter chain, can't hide."""


def verify(
    folder: Path, trusted: bytes | None = None, *, own_key: bool = False, anchors: list[Row] | None = None
) -> Verified:
    """Verify a bundle.

    `trusted`: the PEM of the public key that must have signed it; `own_key`: it lies in the bundle. `anchors`:
    heads that were anchored, read from where the signer can't write (`read_anchors`). Sentences hold no control
    characters, whatever the bundle does.
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
        found.problems += check_report(folder)
        confirmed: dict[str, int] = {}
        found.problems += check_journals(folder, evidence, found.notes, confirmed)
        if anchors is None:
            found.notes.append("The anchors are the bundle's own: who has the key can have made them (give --anchors)")
        else:
            confirmed.clear()
            found.problems += check_outside(folder, evidence, anchors, found.notes, confirmed)
        chains = [*evidence["journals"], *([evidence["drills"] | {"run": "drills"}] if found.kind == "drill" else ())]
        found.shown += [
            f"the chain of {each['run']} ends at entry {each['entries'] - 1}, {each['head']}" for each in chains
        ]
        if found.kind == "drill":
            found.problems += check_drills(folder, evidence, found.notes)
            computed = drill_judgement(folder)
        else:
            entries = _lines(folder, journal_of(found.run))
            computed = run_judgement(entries)
            found.problems += check_identity(folder, evidence)
            found.problems += check_tail(entries, confirmed.get(found.run or ""), computed["verdict"], found.notes)
        found.problems += compare(evidence, computed)
    except Broken as broken:
        found.problems += [str(sentence) for sentence in broken.args]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        found.problems.append(f"The bundle can't be read: {type(error).__name__}: {error}")
    found.problems, found.notes, found.shown = (
        [printable(text) for text in texts] for texts in (found.problems, found.notes, found.shown)
    )
    return found


def check_names(evidence: Row) -> None:
    """What is shown, and what files are named by, is of the form in which drkit writes it."""
    if evidence["kind"] not in {*PATHS, "drill"} or evidence["verdict"] not in {"passed", "failed", "unknown"}:
        raise Broken(f"{EVIDENCE} has no kind and verdict of drkit: {_short([evidence['kind'], evidence['verdict']])}")
    for run in (evidence["run"], *(said["run"] for said in evidence["journals"])):
        if not RUN_NAME.fullmatch(run):
            raise Broken(f"{_short(run)} is no name of a run")


def printable(text: str) -> str:
    """Text that a terminal shows as it is: whatever isn't printable is written as an escape."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


# -- 1 and 2: signature and digests ----------------------------------------------------------------------------------


def canonical(document: Any) -> bytes:
    """The one form in which the envelope is written: another byte, even a space, is noticed."""
    return (json.dumps(document, indent=1, sort_keys=True) + "\n").encode()


def preauthentication(body: bytes) -> bytes:
    """What DSSE signs: the type and the body, each with its length."""
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
        raise Broken(f"{ENVELOPE} is no DSSE envelope: {type(error).__name__}: {error}") from None
    if not KEY_ID.fullmatch(signature["keyid"]):
        raise Broken(f"{ENVELOPE} is no DSSE envelope of drkit: its keyid is no SHA-256")
    if canonical(again) != raw:
        raise Broken(f"{ENVELOPE} was changed: it is not written as it is when it is signed")
    if not (folder / PUBLIC_KEY).is_file() and trusted is None:
        raise Broken(f"{PUBLIC_KEY} is missing")
    key, keyid = public_key(trusted if trusted is not None else (folder / PUBLIC_KEY).read_bytes())
    if signature["keyid"] != keyid:
        raise Broken(f"{ENVELOPE} is signed by key {signature['keyid']}, and the key to verify with is {keyid}")
    try:
        key.verify(signed, preauthentication(body))
    except InvalidSignature:
        raise Broken(f"The signature does not hold: {ENVELOPE} was changed, or another key signed it") from None
    statement = _load(body.decode())
    if statement.get("_type") != STATEMENT_TYPE or statement.get("predicateType") != PREDICATE_TYPE:
        raise Broken(f"The statement is no in-toto statement (v1) of {PREDICATE_TYPE}")
    return statement, keyid


def check_files(folder: Path, statement: Row) -> None:
    """Every file that was signed is here, byte for byte, and no other."""
    signed = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    if len(signed) != len(statement["subject"]):
        raise Broken("The statement names a file twice")
    problems, here = [], set()
    for path in sorted(_everything(folder)):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            problems.append(f"{name} is no ordinary file")
        elif path.is_file() and name != ENVELOPE:
            here.add(name)
            if name not in signed:
                problems.append(f"{name} is not part of what was signed")
            elif digest_of(path) != signed[name]:
                problems.append(f"{name} was changed after it was signed: its SHA-256 is another")
    problems += [f"{name} is missing" for name in sorted(signed.keys() - here)]
    if problems:
        raise Broken(*problems)


def _everything(folder: Path) -> Iterator[Path]:
    """All files and folders in it; a folder that can't be read is an error, not an empty one."""

    def refuse(error: OSError) -> None:
        raise error

    for root, folders, files in os.walk(folder, onerror=refuse):
        yield from (Path(root, name) for name in (*folders, *files))


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_report(folder: Path) -> Iterator[str]:
    """The page for people names the digest of the document that it was made from."""
    if digest_of(folder / EVIDENCE) not in (folder / "report.html").read_text(encoding="utf-8"):
        yield f"report.html was not made from this {EVIDENCE}"


# -- 3: journals, anchors, missing runs ------------------------------------------------------------------------------


def journal_of(run: str | None) -> str:
    """The file that holds the journal of a run, verbatim."""
    return f"journal/{run}.jsonl"


def chain_problem(run: str, entries: list[Row]) -> str | None:
    """Where a journal isn't a chain: docs/journal.md states the form."""
    before = "0" * 64
    names = ("run", "seq", "at", "stage", "event", "previous", "payload_text")
    for number, entry in enumerate(entries):
        if entry.keys() != {*names, "hash"} or any("\n" in str(entry[name]) for name in names[:-1]):
            return f"the journal of {run} is broken at entry {number}: it has other members than an entry"
        text = "\n".join(str(entry[name]) for name in names)
        if entry["run"] != run or entry["seq"] != number or entry["previous"] != before:
            return f"the journal of {run} is broken at entry {number}: an entry is missing or doesn't follow"
        if hashlib.sha256(text.encode()).hexdigest() != entry["hash"]:
            return f"the journal of {run} is broken at entry {number}: it was changed after it was written"
        before = entry["hash"]
    return None if entries else f"the journal of {run} has no entry"


def check_journals(folder: Path, evidence: Row, notes: list[str], confirmed: dict[str, int]) -> Iterator[str]:
    """Chains hold, anchored heads are in them, and no anchored run is missing from the store's list.

    `confirmed` gets, by run, the last entry that an anchor names.
    """
    listed = {row["run"] for row in _lines(folder, "runs.jsonl")}
    places = _json(folder, "anchors.json")["places"]
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
        if evidence["kind"] != "drill" and said["anchored_through"] != through:
            claim = f"anchors confirm it through entry {said['anchored_through']}"
            yield f"{EVIDENCE} says of the journal of {run} that {claim}, and anchors.json gives {through}"
        notes += unconfirmed(f"entries of {run}", len(chains[run]), through)
    unread = [place for place in places if place["anchors"] is None]
    notes += [f"Anchors of {each['place']} could not be read at the export: {each['reason']}" for each in unread]


def read_anchors(file: Path) -> list[Row]:
    """Anchors: a JSON object a line, as the operator's file and the records of `__drkit_journal` are.

    A line that a kill cut short is left out, as drkit does.
    """
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = _load(line)
            found.append(
                {"run": str(row["run"]), "seq": int(row["seq"]), "hash": str(row["hash"])} | {"store": row["store"]}
            )
        except (ValueError, KeyError, TypeError):
            continue
    return found


def check_outside(
    folder: Path, evidence: Row, anchors: list[Row], notes: list[str], confirmed: dict[str, int]
) -> Iterator[str]:
    """Heads that didn't come with the bundle are in its chains; of the run, or the chain of drills, there is one."""
    for said in evidence["journals"]:
        run, entries = said["run"], _lines(folder, journal_of(said["run"]))
        heads = [anchor for anchor in anchors if anchor["run"] == run]
        yield from _against(run, entries, heads)
        if heads:
            confirmed[run] = max(head["seq"] for head in heads)
        elif run == evidence["run"]:
            yield f"The anchors given have no head of the journal of {run}: they don't confirm it"
        notes += [
            f"{each}, by those given" for each in unconfirmed(f"entries of {run}", len(entries), confirmed.get(run))
        ]
    if evidence["kind"] == "drill":
        entries = _lines(folder, "drills.jsonl")
        drills = [anchor for anchor in anchors if anchor["run"] == "drills"]
        # a machine has several chains of drills: this one is the one of which a head is in it
        mine = {str(head["store"]) for head in drills if _has(entries, head)}
        heads = [head for head in drills if str(head["store"]) in mine]
        if not heads:
            yield "The anchors given have no head of the chain of drills: they don't confirm it"
        yield from _against("drills", entries, heads)
        through = max((head["seq"] for head in heads), default=None)
        notes += [f"{each}, by those given" for each in unconfirmed("drills", len(entries), through)]


def _against(run: str, entries: list[Row], heads: list[Row]) -> Iterator[str]:
    wrong = [head["seq"] for head in heads if not _has(entries, head)]
    if wrong:
        yield f"The journal of {run} was cut or written again: the anchors given differ at entry {min(wrong)}"


def unconfirmed(what: str, entries: int, through: int | None) -> list[str]:
    """What of a chain no anchor confirms; nothing where the last entry is."""
    words = "none" if through is None else f"those up to {through}"
    return [] if through == entries - 1 else [f"Of the {entries} {what}, anchors confirm {words}"]


def check_journal(said: Row, entries: list[Row], notes: list[str]) -> Iterator[str]:
    """One journal is a chain, and the one that evidence.json names."""
    run = said["run"]
    problem = chain_problem(run, entries)
    if problem is not None:
        yield problem
        return
    if (said["entries"], said["head"]) != (len(entries), entries[-1]["hash"]):
        yield f"{EVIDENCE} names another head of the journal of {run}"
    if said["chain"] in ("broken", "cut"):
        yield f"The journal of {run} is not what was written, as {EVIDENCE} says: {said['verdict']}"
    back = [entry["seq"] for entry, after in pairwise(entries) if after["at"] < entry["at"]]
    if back:
        notes.append(f"The clock went back in the journal of {run} after entry {', '.join(map(str, back))}")


def check_anchors(
    places: list[Row], chains: dict[str, list[Row]], listed: set[str], confirmed: dict[str, int]
) -> Iterator[str]:
    """What was anchored where a writer of the store can't follow is in the chains, and each such run is listed.

    `confirmed` gets, by run, the last entry that an anchor names.
    """
    for place in places:
        for anchor in place["anchors"] or ():
            run, seq = anchor["run"], anchor["seq"]
            confirmed[run] = max(seq, confirmed.get(run, -1))
            if run in chains and not _has(chains[run], anchor):
                yield f"The journal of {run} was cut or written again: {place['place']} has another head at entry {seq}"
    for run in sorted(confirmed.keys() - listed):
        yield f"Run {run} was anchored and is missing from the list of runs: the store lost it"


def check_drills(folder: Path, evidence: Row, notes: list[str]) -> Iterator[str]:
    """The chain of all drills holds, and has this one with the digests of its raw files."""
    entries = _lines(folder, "drills.jsonl")
    problem = chain_problem("drills", entries)
    if problem is not None:
        yield f"{problem}; a drill is missing, or the chain was written again"
        return
    said = evidence["drills"]
    if (said["entries"], said["head"]) != (len(entries), entries[-1]["hash"]):
        yield f"{EVIDENCE} names another head of the chain of drills"
    yield from check_drill_anchors(_json(folder, "anchors.json"), entries, notes)
    mine = [body for body in (_load(entry["payload_text"]) for entry in entries) if body["run"] == evidence["run"]]
    if len(mine) != 1:
        yield f"Drill {evidence['run']} is in the chain of drills {len(mine)} times"
        return
    for name, digest in mine[0]["files"].items():
        if not _inside(folder, name).is_file() or digest_of(folder / name) != digest:
            yield f"{name} is not what the chain of drills says of {evidence['run']}"
    for name in ("verdict", "started_at"):
        if mine[0][name] != evidence[name]:
            yield f"The chain of drills says {name} {mine[0][name]}, {EVIDENCE} {evidence[name]}"


def check_drill_anchors(anchors: Row, entries: list[Row], notes: list[str]) -> Iterator[str]:
    """Anchored heads of the chain of drills are in it; one that it was copied from, or stands beside, is noted."""
    for anchor in anchors["drills"]:
        if not _has(entries, anchor):
            yield f"The chain of drills was cut or written again: entry {anchor['seq']} was anchored with another head"
    others = anchors["other_drills"]
    shared = {name: [head["seq"] for head in heads if _has(entries, head)] for name, heads in others.items()}
    own = [anchor["seq"] for anchor in anchors["drills"]]
    through = max((seq for each in (own, *shared.values()) for seq in each), default=None)
    notes += unconfirmed("drills", len(entries), through)
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


def _has(entries: list[Row], anchor: Row) -> bool:
    """Whether a head that was anchored is in a chain."""
    return bool(0 <= anchor["seq"] < len(entries) and entries[anchor["seq"]]["hash"] == anchor["hash"])


# -- 4: verdicts -----------------------------------------------------------------------------------------------------


def compare(evidence: Row, computed: Row) -> Iterator[str]:
    """What evidence.json says against what was computed anew."""
    for name, value in computed.items():
        said = evidence.get(name)
        if not isinstance(value, list):
            if not _same(said, value):
                yield f"{name} is said to be {_short(said)}, and the raw data gives {_short(value)}"
            continue
        for number in range(max(len(value), len(said or ()))):
            ours = value[number] if number < len(value) else None
            theirs = said[number] if said and number < len(said) else None
            if not _same(theirs, ours):
                yield f"{name}[{number}] is said to be {_short(theirs)}, and the raw data gives {_short(ours)}"


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
"""By kind of run: its stages, each with the state that its end reaches."""
MOVES = ("failover", "failback")
ENDED = ("cancelled", "abandoned")


def events(entries: list[Row]) -> Iterator[tuple[Row, Any]]:
    """A journal's entries with their payloads, long ones put together from their parts."""
    parts: list[str] = []
    for entry in entries:
        body = _load(entry["payload_text"])
        if isinstance(body, dict) and body.keys() == {"part", "of", "text"}:
            parts = [*(parts if body["part"] > 1 else []), body["text"]]
            if not body["part"] == body["of"] == len(parts):
                continue
            body = _load("".join(parts))
        yield entry, body


def replay(kind: str, started_at: str, facts: Row, happened: list[tuple[Row, Any]]) -> tuple[str, Row, list[Row]]:
    """A run's state, what it established, and how each of its stages ended last."""
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
    """What ran, when, on which clusters, with which configuration and by whom: as the journal has it."""
    entries = _lines(folder, journal_of(evidence["run"]))
    happened = list(events(entries))
    first = happened[0][1]
    plan, origin, began, ended = first["plan"], first["origin"], first["started_at"], entries[-1]["at"]
    link = f"{plan['link']['source']}->{plan['link']['target']}"
    views = [plan[role] for role in ("source", "live", "target") if plan.get(role)]
    ours = {
        "kind": first["kind"],
        "title": f"{first['kind']} of {link}",
        "started_at": _instant(began),
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
    }
    theirs = {name: evidence[name.split(".")[0]] for name in ours}
    theirs |= {name: theirs[name][name.split(".")[1]] for name in ours if "." in name}
    yield from compare(theirs, ours)
    if not _same(_json(folder, "plan.json"), plan):
        yield "plan.json is not the plan that the journal begins with"


def check_tail(entries: list[Row], through: int | None, verdict: str, notes: list[str]) -> Iterator[str]:
    """Entries after the last anchor can be anybody's who writes to the store: they don't turn a failed run."""
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


def _instant(text: str) -> str:
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


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


def _run_checks(kind: str, state: str, facts: Row) -> Iterator[Row]:
    """The invariants that a run's own facts must show."""
    ended = {"closed": ("passed", None)}.get(state, ("unknown", f"the run is not at its end: it is {state}"))
    yield check("finished", *(("failed", f"the run was {state}") if state in ENDED else ended))
    if kind in MOVES:
        late = [{"partition": tp, "from": a, "to": b} for tp, (a, b) in sorted((facts.get("late") or {}).items())]
        if late:
            yield check("old_cluster_not_written", "failed", "written after the last look, unfenced", late)
        elif facts.get("fenced"):
            yield check("old_cluster_not_written", "passed", facts.get("fence_reason"))
        else:
            why = facts.get("fence_reason") or "nothing is recorded of the fence"
            accepted = "; an operator accepted that" if facts.get("unfenced_accepted") else ""
            yield check("old_cluster_not_written", "unknown", f"it was not fenced: {why}{accepted}")
        settled = bool(facts.get("mirror_stopped") and (facts.get("sealed") or facts.get("reversed")))
        yield _held("no_mirror_writes_below", settled, facts.get("mirror_stopped") or None)
        if facts.get("mode") == "planned":
            yield _held("planned_move_waited_for_all_records", facts.get("lag") == 0, facts.get("lag"))
    if kind not in {"failover", "rehearsal"}:
        kept = facts.get("salvaged") is not None and facts.get("cluster_confirmed") is not None
        yield _held("kept_before_deleted", kept, facts.get("salvaged"))
        yield _held("audit_clean", facts.get("audit") == "clean", facts.get("audit"))
    if kind != "reprotect":
        placed, committed, verified = facts.get("placed"), facts.get("committed"), facts.get("verified")
        if placed == 0 and not committed and not verified:
            for name in ("all_positions_committed", "positions_read_back", "records_at_positions_unchanged"):
                yield check(name, "unknown", "no position was moved")
            return
        yield _held("all_positions_committed", committed == placed, committed)
        yield _held("positions_read_back", verified == committed, verified)
        yield _places_unchanged(facts.get("places"))


def _places_unchanged(places: Row | None) -> Row:
    """Whether the records at the groups' new positions are the ones planned."""
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
    """Where no objective in records judges it: a loss that isn't counted is no passed run."""
    why = f": {measured['rpo_reason'] or 'nothing is recorded of it'}{more}"
    if measured["rpo_records"] is None:
        return check("loss_known", "unknown", f"the loss is not known{why}")
    if measured["rpo_lower_bound"]:
        return check("loss_known", "unknown", f"the loss of {measured['rpo_records']} records is a lower bound{why}")
    return check("loss_known", "passed")


def _held(name: str, holds: bool, known: object) -> Row:
    return check(
        name, "unknown" if known is None else "passed" if holds else "failed", None if holds else f"it is {known}"
    )


def drill_judgement(folder: Path) -> Row:
    """Checks, numbers, objectives and verdict of a drill, from what its clients recorded."""
    history = History(folder)
    result = _json(folder, "result.json")
    checks = [history.judge(each["check"]) for each in result["checks"]]
    measured = history.measure()
    objectives = [_objective(each["name"], each["objective"], measured) for each in result["objectives"]]
    steady, steps = result["steady_state"], result["steps"]
    refuted = [s for s in steps if s["section"] == "method" and s["outcome"] == "failed"]
    hidden = [
        s
        for s in steps
        if (s["section"] == "setup" and s["outcome"] == "failed")
        or (s["section"] != "rollbacks" and s["outcome"] == "unknown")
    ]
    unseen = [f"{s['step']}: {s['reason']}" for s in hidden]
    unseen += [history.meta["interrupted"]] if history.meta["interrupted"] else []
    unseen += ["the steady state was not reached"] if steady["reached"] is False else []
    failed = [f"{s['step']} failed: {s['reason']}" for s in refuted]
    verdict, _ = _verdict(checks, objectives, failed, unseen)
    said = [result["verdict"], *((each["check"], each["outcome"], each["anomalies"]) for each in result["checks"])]
    ours = [verdict, *((each["check"], each["outcome"], each["anomalies"]) for each in checks)]
    if said != ours:
        raise Broken(f"result.json says {_short(said)}, and the raw histories give {_short(ours)}")
    return {"checks": checks, "measured": measured, "objectives": objectives, "verdict": verdict}


def _objective(name: str, limit: float, measured: Row) -> Row:
    value, bound = measured[name], name == "rpo_records" and measured.get("rpo_lower_bound")
    outcome = "unknown" if value is None else "missed" if value > limit else "unknown" if bound else "met"
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

    A drill in which something wasn't seen and nothing was refuted is unknown also where an objective was missed.
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
    """What the clients of a drill recorded, and the seven questions that are asked of it.

    attempts: key, seq, cluster, partition, sent_at, digest, outcome, offset, acked_at
    polls: session, assignment, cluster, partition, offset, key, seq, at
    positions: cluster, partition, offset, at
    landed: partition, offset, key, seq, digest (on the target at the end, read by a bystander)
    """

    def __init__(self, folder: Path) -> None:
        self.meta = _json(folder, "history/history.json")
        self.source, self.target, self.incomplete = (self.meta[name] for name in ("source", "target", "incomplete"))
        parts = ("attempts", "polls", "positions", "landed")
        self.attempts, self.polls, self.positions, self.landed = (
            [dict(zip(self.meta["columns"][part], row, strict=True)) for row in _lines(folder, f"history/{part}.jsonl")]
            for part in parts
        )
        for row in (*self.attempts, *self.polls, *self.landed):
            row["record"] = None if row["key"] is None else (row["key"], row["seq"])
        self.landed.sort(key=lambda row: (row["partition"], row["offset"]))
        self.on_target = {row["record"] for row in self.landed if row["record"]}
        self.acked = [row for row in self.attempts if row["outcome"] == "acked"]

    def judge(self, name: str) -> Row:
        """One check. What is missing of a history never passes a check, and never makes an anomaly of its own."""
        find, needs, forged = CHECKS[name]
        missing = "; ".join(self.incomplete[part] for part in sorted(needs) if part in self.incomplete)
        if forged & self.incomplete.keys():
            return check(name, "unknown", missing)
        if not (self.attempts or self.polls or self.landed):
            return check(name, "unknown", "nothing was sent and nothing was read")
        try:
            found = [{"cluster": c, **{k: row[k] for k in ("partition", "offset", "record")}} for c, row in find(self)]
        except Broken as cannot:
            return check(name, "unknown", str(cannot))
        for row in found:
            row["record"] = None if row["record"] is None else f"{row['record'][0]}#{row['record'][1]}"
        if found:
            return check(name, "failed", None, found)
        why = missing or self.vacuous(name)
        return check(name, "unknown" if why else "passed", why)

    def vacuous(self, name: str) -> str | None:
        """Why a check that found nothing had nothing to look at."""
        if name == "lost":
            by_source = any(row["cluster"] == self.source for row in self.acked)
            return None if by_source else f"{self.source} acknowledged nothing"
        if name == "nonmonotonic_poll":
            return None if self.polls else "the group read nothing"
        return None if self.landed else f"nothing is on {self.target}"

    def lost(self) -> Iterator[tuple[str, Row]]:
        """Acknowledged by the source, not on the target although a later one of the partition is; or by the target."""
        through: dict[int, int] = {}
        on_source = [row for row in self.acked if row["cluster"] == self.source]
        for row in on_source:
            if row["record"] in self.on_target:
                through[row["partition"]] = max(row["offset"], through.get(row["partition"], -1))
        for row in on_source:
            if row["record"] not in self.on_target and row["offset"] < through.get(row["partition"], -1):
                yield self.source, row
        for row in self.acked:
            if row["cluster"] == self.target and row["record"] not in self.on_target:
                yield self.target, row

    def duplicated(self) -> Iterator[tuple[str, Row]]:
        """The same record at a further offset of the target."""
        seen = set()
        for row in self.landed:
            if row["record"] in seen:
                yield self.target, row
            seen |= {row["record"]} - {None}

    def corrupted(self) -> Iterator[tuple[str, Row]]:
        """Other bytes or another timestamp than were sent."""
        sent = {row["record"]: row["digest"] for row in self.attempts}
        yield from (
            (self.target, row) for row in self.landed if sent.get(row["record"], row["digest"]) != row["digest"]
        )

    def reordered(self) -> Iterator[tuple[str, Row]]:
        """After a later record of its key, or against the order of the source's partition."""
        source = {row["record"]: row["offset"] for row in self.acked if row["cluster"] == self.source}
        seen, last, highest = set(), dict[tuple[int, str], int](), dict[int, int]()
        for row in self.landed:
            if row["record"] is None or (row["partition"], row["record"]) in seen:
                continue
            seen.add((row["partition"], row["record"]))
            partition, key, offset = row["partition"], (row["partition"], row["key"]), source.get(row["record"])
            if row["seq"] < last.get(key, -1) or (offset is not None and offset < highest.get(partition, -1)):
                yield self.target, row
            last[key] = max(row["seq"], last.get(key, -1))
            highest[partition] = max(highest.get(partition, -1), -1 if offset is None else offset)

    def nonmonotonic_poll(self) -> Iterator[tuple[str, Row]]:
        """Within one assignment, an offset at or below one that was given before."""
        last: dict[tuple[Any, ...], int] = {}
        for row in self.polls:
            place = tuple(row[name] for name in ("session", "assignment", "cluster", "partition"))
            if row["offset"] <= last.get(place, -1):
                yield row["cluster"], row
            last[place] = max(row["offset"], last.get(place, -1))

    def skipped_by_group(self) -> Iterator[tuple[str, Row]]:
        """The group stands past a record of the target that it never read on either side."""
        stands: dict[int, int] = {}
        for row, after in [*((row, 1) for row in self.polls), *((row, 0) for row in self.positions)]:
            if row["cluster"] == self.target:
                stands[row["partition"]] = max(row["offset"] + after, stands.get(row["partition"], 0))
        if not stands:
            raise Broken(f"the group has no position on {self.target}: it never read there")
        read = {row["record"] for row in self.polls}
        for row in self.landed:
            if row["record"] and row["record"] not in read and row["offset"] < stands.get(row["partition"], 0):
                yield self.target, row

    def foreign(self) -> Iterator[tuple[str, Row]]:
        """On the target, and sent by nobody."""
        sent = {row["record"] for row in self.attempts}
        yield from ((self.target, row) for row in self.landed if row["record"] is None or row["record"] not in sent)

    def measure(self) -> Row:
        """RPO and RTO as the clients saw them. Times are seconds of one monotonic clock."""
        at, sure = self.meta["disaster_at"], not {"attempts", "landed"} & self.incomplete.keys()
        sure = sure and any(r["cluster"] == self.source for r in self.acked)
        missing = [r for r in self.acked if r["cluster"] == self.source and r["record"] not in self.on_target]
        age = None
        if sure and (not missing or at is not None):
            age = max(0.0, at - min(row["sent_at"] for row in missing)) if missing else 0.0
        reads = [r["at"] for r in self.polls if r["cluster"] == self.target and at is not None and r["at"] >= at]
        by = {name: {r["record"] for r in self.polls if r["cluster"] == name} for name in (self.source, self.target)}
        return {
            "rpo_records": len(missing) if sure else None,
            "rpo_seconds": age,
            "rto_seconds": min(reads) - at if reads and self.meta["moved"] else None,
            "acknowledged": len(self.acked),
            "unknown": len(self.attempts) - len(self.acked),
            "landed": None if "landed" in self.incomplete else len(self.landed),
            "reread": None if "polls" in self.incomplete else len((by[self.source] & by[self.target]) - {None}),
        }


Finder = Callable[[History], Iterator[tuple[str, Row]]]
CHECKS: dict[str, tuple[Finder, set[str], set[str]]] = {
    "lost": (History.lost, {"attempts", "landed"}, {"landed"}),
    "duplicated": (History.duplicated, {"landed"}, set()),
    "corrupted": (History.corrupted, {"attempts", "landed"}, set()),
    "reordered": (History.reordered, {"attempts", "landed"}, {"landed"}),
    "nonmonotonic_poll": (History.nonmonotonic_poll, {"polls"}, set()),
    "skipped_by_group": (History.skipped_by_group, {"polls", "landed"}, {"polls"}),
    "foreign": (History.foreign, {"attempts", "landed"}, {"attempts"}),
}
"""By check: the finder, the parts of the history it needs, and those whose absence would forge anomalies."""


def _step(name: str) -> Row:
    unended = {"outcome": "unknown", "reason": "no outcome is recorded", "seconds": None, "ended_after_seconds": None}
    return {"name": name, **unended, "attempts": 0}


def seconds_between(start: str, end: str) -> float:
    """Seconds from one instant to another, to the millisecond; never negative."""
    return round(max(0.0, (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()), 3)


def _json(folder: Path, name: str) -> Any:
    return _load(_inside(folder, name).read_text(encoding="utf-8"))


def _lines(folder: Path, name: str) -> list[Any]:
    return [_load(line) for line in _inside(folder, name).read_text(encoding="utf-8").split("\n") if line]


def _inside(folder: Path, name: str) -> Path:
    """A file of the bundle; all of them are signed. A name that leads elsewhere is none."""
    if name.startswith("/") or {"", ".", ".."} & {*name.split("/")}:
        raise Broken(f"{_short(name)} is no file of the bundle")
    return folder / name


def _load(text: str) -> Any:
    """JSON that everybody reads in the same way: no member twice, no NaN, no infinity."""
    return json.loads(text, object_pairs_hook=_members, parse_constant=_finite, parse_float=_finite)


def _members(pairs: list[tuple[str, Any]]) -> Row:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a member of a JSON object is there twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON")
    return number


def _same(one: Any, other: Any) -> bool:
    return bool(json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def lies_in(folder: Path, file: Path) -> bool:
    """Whether a file is one of the bundle: a key of its own says nothing of who signed."""
    return file.resolve().is_relative_to(folder.resolve())


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Verify an evidence bundle of drkit, without drkit.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--anchors", type=Path, help="heads of journals, from where the signer can't write")
    parser.add_argument("--key", type=Path, help="the public key (PEM) that must have signed it")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    try:
        trusted = None if options.key is None else options.key.read_bytes()
    except OSError as error:
        parser.error(f"{options.key} can't be read: {error.strerror}")
    try:
        anchors = None if options.anchors is None else read_anchors(options.anchors)
    except (OSError, UnicodeDecodeError) as error:
        parser.error(f"{options.anchors} can't be read: {error}")
    own_key = options.key is not None and lies_in(options.folder, options.key)
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
