"""The demo's claims and the evidence made of them: one claim that fails fails the demo."""

import io

import pytest
from rich.console import Console

from drkit.demo.evidence import evidence_document, print_evidence
from drkit.demo.story import Claims, Findings

TOTALS = {
    "source_records": 100,
    "target_records": 90,
    "matched": 90,
    "unseen": 10,
    "lost": 0,
    "duplicated": 0,
    "corrupted": 0,
    "reordered": 0,
    "foreign": 0,
}


def findings() -> Findings:
    return Findings(
        at="04:03:00",
        produced=100,
        failover={
            "groups": [
                {"group": "billing", "reread": 3},
                {"group": "billing", "reread": 4},
                {"group": "search", "reread": None},
                {"group": "search", "reread": 1},
            ],
            "evidence": {"rpo_records": 12, "rpo_seconds": 0.8, "rto_seconds": 3.1},
        },
        audits={"after the failover": {"verdict": "clean", "totals": TOTALS}},
        read_again={"billing": 9},
        unseen=10,
    )


def claims(*held: bool) -> Claims:
    made = Claims()
    for number, each in enumerate(held):
        made.check(f"claim {number}", each, "seen")
    return made


def test_all_claims_held():
    assert evidence_document(findings(), claims(True, True), 1.0, None)["verdict"] == "held"


@pytest.mark.parametrize(
    ("made", "error"), [(claims(True, False), None), (claims(), None), (claims(True), "the lab did not start")]
)
def test_a_failed_claim_no_claim_or_an_error_fails_the_demo(made, error):
    assert evidence_document(findings(), made, 1.0, error)["verdict"] == "failed"


def test_equal_says_what_was_expected():
    made = Claims()
    assert not made.equal("unseen", 5, 7)
    assert made.checked[0].found == "expected 5, found 7"


def test_what_a_group_reads_again_is_summed_and_unknown_stays_unknown():
    groups = {each["group"]: each for each in evidence_document(findings(), claims(True), 1.0, None)["groups"]}
    assert groups["billing"]["planned_reread"] == 7
    assert groups["search"]["planned_reread"] is None


def test_the_last_page_shows_the_failed_claim_in_80_columns():
    out = io.StringIO()
    document = evidence_document(findings(), claims(True, False), 1.0, None)
    print_evidence(Console(file=out, width=80), document)
    text = out.getvalue()
    assert "NOT everything" in text
    assert "✘ claim 1" in text
    assert "12 records by what the mirror had last seen" in text
    assert "10 records as counted" in text
    assert max(map(len, text.splitlines())) <= 80


def test_before_anything_was_found_nothing_is_claimed():
    document = evidence_document(Findings(), claims(), 0.1, "no memory")
    assert document["rpo"] == {"observed_records": None, "observed_seconds": None, "audited_records": None}
    out = io.StringIO()
    print_evidence(Console(file=out, width=80), document)
    assert "no memory" in out.getvalue()
