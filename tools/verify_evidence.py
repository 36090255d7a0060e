#!/usr/bin/env python3
"""Verify an evidence bundle of drkit, without drkit: python3 verify_evidence.py DIR [--key PUBLIC_KEY.pem]

Needs the standard library and `cryptography`, nothing else. What is checked, in this order:

1. statement.dsse.json is a DSSE envelope (payload type in-toto) with one Ed25519 signature that holds.
2. The in-toto statement names every file of the folder with its SHA-256, and no file is missing, added or changed.
3. Each journal is a hash chain without gaps, and every head that was anchored elsewhere is in it.
   No run that was anchored is missing from the list of runs; no drill is missing from the chain of drills.
4. The verdicts are computed anew: a run's from its journal, a drill's from what its clients recorded.

Exit code 0: the bundle is what was signed, and its verdicts follow from its raw data. 1: it is refused; each line says
why. 2: usage. Without --key the signature is checked against the key in the bundle, which shows that nothing was
changed since, not who signed: get the public key by another way, and give it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
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


def verify(folder: Path, trusted: bytes | None = None) -> Verified:
    """Verify a bundle. `trusted`: the PEM of the public key that must have signed it."""
    found = Verified()
    try:
        statement, found.key = check_signature(folder, trusted)
        check_files(folder, statement)
        if trusted is None:
            found.notes.append("The signer is not checked: the key is the bundle's own (give --key)")
        evidence, predicate = _json(folder, EVIDENCE), statement["predicate"]
        found.run, found.kind, found.verdict = (evidence[name] for name in ("run", "kind", "verdict"))
        for name in ("run", "kind", "verdict"):
            if evidence[name] != predicate[name]:
                found.problems.append(f"{EVIDENCE} says {name} {evidence[name]}, the statement {predicate[name]}")
        found.problems += check_report(folder)
        found.problems += check_journals(folder, evidence, found.notes)
        if found.kind == "drill":
            found.problems += check_drills(folder, evidence)
            computed = drill_judgement(folder)
        else:
            computed = run_judgement(_lines(folder, journal_of(found.run)))
        found.problems += compare(evidence, computed)
    except Broken as broken:
        found.problems += [str(sentence) for sentence in broken.args]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OSError, RecursionError) as error:
        found.problems.append(f"The bundle can't be read: {type(error).__name__}: {error}")
    return found


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
        envelope = json.loads(raw)
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
    statement = json.loads(body)
    if statement.get("_type") != STATEMENT_TYPE or statement.get("predicateType") != PREDICATE_TYPE:
        raise Broken(f"The statement is no in-toto statement (v1) of {PREDICATE_TYPE}")
    return statement, keyid


def check_files(folder: Path, statement: Row) -> None:
    """Every file that was signed is here, byte for byte, and no other."""
    signed = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    problems, here = [], set()
    for path in sorted(folder.rglob("*")):
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
    for number, entry in enumerate(entries):
        names = ("run", "seq", "at", "stage", "event", "previous", "payload_text")
        text = "\n".join(str(entry[name]) for name in names)
        if entry["run"] != run or entry["seq"] != number or entry["previous"] != before:
            return f"the journal of {run} is broken at entry {number}: an entry is missing or doesn't follow"
        if hashlib.sha256(text.encode()).hexdigest() != entry["hash"]:
            return f"the journal of {run} is broken at entry {number}: it was changed after it was written"
        before = entry["hash"]
    return None if entries else f"the journal of {run} has no entry"


def check_journals(folder: Path, evidence: Row, notes: list[str]) -> Iterator[str]:
    """Chains hold, anchored heads are in them, and no anchored run is missing from the store's list."""
    listed = {row["run"] for row in _lines(folder, "runs.jsonl")}
    chains = {said["run"]: _lines(folder, journal_of(said["run"])) for said in evidence["journals"]}
    if evidence["kind"] != "drill" and evidence["run"] not in chains:
        yield f"The journal of {evidence['run']} is not in the bundle"
    for said in evidence["journals"]:
        run, entries = said["run"], chains[said["run"]]
        problem = chain_problem(run, entries)
        if problem is not None:
            yield problem
        elif (said["entries"], said["head"]) != (len(entries), entries[-1]["hash"]):
            yield f"{EVIDENCE} names another head of the journal of {run}"
        if run not in listed:
            yield f"Run {run} is missing from the list of runs"
    yield from check_anchors(_json(folder, "anchors.json")["places"], chains, listed, notes)


def check_anchors(places: list[Row], chains: dict[str, list[Row]], listed: set[str], notes: list[str]) -> Iterator[str]:
    """What was anchored where a writer of the store can't follow is in the chains, and each such run is listed."""
    confirmed: dict[str, int] = {}
    for place in places:
        if place["anchors"] is None:
            notes.append(f"Anchors of {place['place']} could not be read at the export: {place['reason']}")
        for anchor in place["anchors"] or ():
            run, seq = anchor["run"], anchor["seq"]
            confirmed[run] = max(seq, confirmed.get(run, -1))
            if run in chains and (seq >= len(chains[run]) or chains[run][seq]["hash"] != anchor["hash"]):
                yield f"The journal of {run} was cut or written anew: {place['place']} has another head at entry {seq}"
    for run in sorted(confirmed.keys() - listed):
        yield f"Run {run} was anchored and is missing from the list of runs: the store lost it"
    for run, entries in chains.items():
        if confirmed.get(run, -1) < len(entries) - 1:
            through = "none" if run not in confirmed else f"those up to {confirmed[run]}"
            notes.append(f"Of the {len(entries)} entries of {run}, anchors confirm {through}")


def check_drills(folder: Path, evidence: Row) -> Iterator[str]:
    """The chain of all drills holds, and has this one with the digests of its raw files."""
    entries = _lines(folder, "drills.jsonl")
    problem = chain_problem("drills", entries)
    if problem is not None:
        yield f"{problem}; a drill is missing, or the chain was written anew"
        return
    said = evidence["drills"]
    if (said["entries"], said["head"]) != (len(entries), entries[-1]["hash"]):
        yield f"{EVIDENCE} names another head of the chain of drills"
    for anchor in _json(folder, "anchors.json")["drills"]:
        seq = anchor["seq"]
        if seq >= len(entries) or entries[seq]["hash"] != anchor["hash"]:
            yield f"The chain of drills was cut or written anew: entry {seq} was anchored with another head"
    mine = [body for body in (json.loads(entry["payload_text"]) for entry in entries) if body["run"] == evidence["run"]]
    if len(mine) != 1:
        yield f"Drill {evidence['run']} is in the chain of drills {len(mine)} times"
        return
    for name, digest in mine[0]["files"].items():
        if not (folder / name).is_file() or digest_of(folder / name) != digest:
            yield f"{name} is not what the chain of drills says of {evidence['run']}"
    for name in ("verdict", "started_at"):
        if mine[0][name] != evidence[name]:
            yield f"The chain of drills says {name} {mine[0][name]}, {EVIDENCE} {evidence[name]}"


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
ENDED = ("cancelled", "abandoned")


def events(entries: list[Row]) -> Iterator[tuple[Row, Any]]:
    """A journal's entries with their payloads, long ones put together from their parts."""
    parts: list[str] = []
    for entry in entries:
        body = json.loads(entry["payload_text"])
        if isinstance(body, dict) and body.keys() == {"part", "of", "text"}:
            parts = [*(parts if body["part"] > 1 else []), body["text"]]
            if not body["part"] == body["of"] == len(parts):
                continue
            body = json.loads("".join(parts))
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
    since = facts.get("fenced_at") if kind == "failback" else first["started_at"]
    verified = facts.get("verified_at")
    measured = {
        "rpo_records": loss.get("records"),
        "rpo_seconds": loss.get("seconds"),
        "rto_seconds": seconds_between(since, verified) if since and verified else None,
        "rpo_basis": loss.get("basis"),
        "rpo_lower_bound": loss.get("lower_bound", False),
        "rpo_reason": loss.get("reason"),
    }
    checks = list(_run_checks(kind, state, facts))
    wanted = {} if kind == "reprotect" else first["origin"]["objectives"]
    objectives = [_objective(name, limit, measured) for name, limit in wanted.items() if limit is not None]
    verdict, reasons = _verdict(checks, objectives, [], [])
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
    if kind in ("failover", "failback"):
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
        yield _held("all_positions_committed", committed == placed, committed)
        yield _held("positions_read_back", verified == committed, verified)
        places = facts.get("places")
        outcome = "unknown" if not places or places["unknown"] else "failed" if places["different"] else "passed"
        why = "no place was looked at again" if not places else f"{places['unknown']} places could not be compared"
        yield check("records_at_positions_unchanged", outcome, why if outcome == "unknown" else None)


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
    reason = (measured.get("rpo_reason") if name != "rto_seconds" else None) or "it could not be measured"
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
        return (
            check(name, "failed", None, found)
            if found
            else check(name, "unknown" if missing else "passed", missing or None)
        )

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
    return json.loads((folder / name).read_text(encoding="utf-8"))


def _lines(folder: Path, name: str) -> list[Any]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").split("\n") if line]


def _same(one: Any, other: Any) -> bool:
    return bool(json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True))


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description="Verify an evidence bundle of drkit, without drkit.")
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--key", type=Path, help="the public key (PEM) that must have signed it")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is no folder")
    try:
        trusted = None if options.key is None else options.key.read_bytes()
    except OSError as error:
        parser.error(f"{options.key} can't be read: {error.strerror}")
    found = verify(options.folder, trusted)
    for problem in found.problems:
        sys.stdout.write(f"refused: {problem}\n")
    for note in found.notes:
        sys.stdout.write(f"note: {note}\n")
    if not found.problems:
        sys.stdout.write(f"verified: {found.kind} {found.run}, verdict {found.verdict}, signed by key {found.key}\n")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
