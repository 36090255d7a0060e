"""What `drkit audit --from-digests` says of itself, and what it doesn't go with."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from drkit.cli.views.audit_view import _WHY, digest_document, digest_lines, refuse_with_digest
from drkit.model.audit.audit_result import AuditResult, Counts, PlacementBasis
from drkit.model.digests import Coverage, NotCovered, Uncovered
from drkit.model.errors import ConfigError
from drkit.model.topology import LinkId


def result(coverage: Coverage | None) -> AuditResult:
    counts = Counts(source_records=1_500, target_records=1_500, matched=1_500)
    at = datetime(2026, 11, 20, 4, 0, tzinfo=UTC)
    return AuditResult(
        LinkId("primary", "dr"), counts, (), (), 0, "f", PlacementBasis.MAPPING, at, 1.0, coverage=coverage
    )


def test_it_says_how_much_was_proven_and_why_the_rest_was_not() -> None:
    coverage = Coverage(1_200, 2, (NotCovered(Uncovered.NO_DIGEST, 3, 290), NotCovered(Uncovered.BEYOND_END, 1, 20)))
    assert digest_lines(result(coverage)) == [
        "by digest: 1,200 records proven on the target alone (2 ranges), 300 compared on both sides",
        "compared on both sides: 290 source offsets in 3 stretches, since the mirror kept no digest of them",
        "compared on both sides: 20 source offsets in 1 stretch, since a log ends within the range of their digest",
    ]
    assert digest_document(result(coverage)) == {
        "proven": 1_200,
        "ranges": 2,
        "compared": 300,
        "not_covered": [
            {"reason": "no_digest", "stretches": 3, "offsets": 290},
            {"reason": "beyond_end", "stretches": 1, "offsets": 20},
        ],
    }
    assert set(_WHY) == set(Uncovered)


def test_an_audit_without_it_says_nothing_of_digests() -> None:
    assert digest_lines(result(None)) == []
    assert digest_document(result(None)) is None


@pytest.mark.parametrize("option", ["--full", "--from", "--until"])
def test_options_that_it_excludes_are_refused_with_the_reason(option) -> None:
    with pytest.raises(ConfigError, match=f"{option} and --from-digests exclude each other") as refused:
        refuse_with_digest({"--full": None, option: "x"})
    assert refused.value.meaning
    refuse_with_digest({"--full": False, "--from": None})
