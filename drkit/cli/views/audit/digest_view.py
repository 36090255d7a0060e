"""`drkit audit --from-digests`: what it goes with, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drkit.model.audit.audit_result import AuditResult
from drkit.model.digests import Uncovered
from drkit.model.errors import ConfigError

_WHY = {
    Uncovered.NO_DIGEST: "the mirror kept no digest of them",
    Uncovered.DIFFERS: "the target doesn't sum up to the mirror's digest",
    Uncovered.BEYOND_END: "a log ends within the range of their digest",
    Uncovered.TARGET_RETIRED: "the target's log begins within the range of their digest",
    Uncovered.COMPACTED: "their topic is compacted",
    Uncovered.MAPPING: "the mapping rows place them elsewhere than their digest",
    Uncovered.SOURCE_DIVERGED: "nothing shows that the source still holds what the mirror read there",
}


def refuse_with_digest(given: Mapping[str, object]) -> None:
    """Raise `ConfigError` for options with which digests can't be used."""
    meanings = {
        "--full": "--full decodes every record of both sides, --from-digests reads none that a digest stands for",
        "--from": "A digest covers whole ranges of offsets, whatever their records' timestamps",
        "--until": "A digest covers whole ranges of offsets, whatever their records' timestamps",
    }
    for option, value in given.items():
        if value:
            raise ConfigError(
                f"{option} and --from-digests exclude each other",
                meaning=meanings[option],
                remedy="Leave one of them out; --topic chooses topics",
            )


def digest_document(result: AuditResult) -> dict[str, Any] | None:
    """What was proven by digest and what was compared on both sides; None where digests weren't asked for."""
    coverage = result.coverage
    if coverage is None:
        return None
    return {
        "proven": coverage.proven,
        "ranges": coverage.ranges,
        "compared": compared(result),
        "not_covered": [
            {"reason": each.reason.value, "stretches": each.stretches, "offsets": each.offsets}
            for each in coverage.not_covered
        ],
    }


def compared(result: AuditResult) -> int:
    """The source's records that were read: those within what no digest proved."""
    return result.counts.source_records - (0 if result.coverage is None else result.coverage.proven)


def digest_lines(result: AuditResult) -> list[str]:
    """The same in words."""
    coverage = result.coverage
    if coverage is None:
        return []
    first = (
        f"by digest: {coverage.proven:,} records proven on the target alone ({coverage.ranges:,} ranges), "
        f"{compared(result):,} compared on both sides"
    )
    return [first] + [
        f"compared on both sides: {each.offsets:,} source offsets in {each.stretches:,} "
        f"{'stretch' if each.stretches == 1 else 'stretches'}, since {_WHY[each.reason]}"
        for each in coverage.not_covered
    ]
