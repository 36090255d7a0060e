"""The audit's vocabulary: sums, choices, verdict."""

from __future__ import annotations

import pytest

from drkit.model.audit.audit_result import Counts, TopicChoice


def test_totals_are_sums_field_by_field():
    parts = [Counts(source_records=3, matched=2, lost=1), Counts(source_records=5, matched=5, foreign=2)]

    assert Counts.total(parts) == Counts(source_records=8, matched=7, lost=1, foreign=2)
    assert Counts.total([]) == Counts()


@pytest.mark.parametrize("kind", ["lost", "duplicated", "corrupted", "reordered", "foreign"])
def test_each_anomaly_deviates(kind: str):
    assert not Counts(**{kind: 1}).clean


@pytest.mark.parametrize("kind", ["unseen", "source_retired", "target_retired", "target_appended", "matched"])
def test_what_is_no_anomaly_is_clean(kind: str):
    assert Counts(**{kind: 1}).clean


def test_a_broken_sum_is_named():
    assert Counts(source_records=2, target_records=2, matched=1, corrupted=1).broken_identity() is None
    assert "source_records" in (Counts(source_records=1).broken_identity() or "")
    assert "target_records" in (Counts(target_records=1).broken_identity() or "")


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("t", TopicChoice("t")),
        ("t:0", TopicChoice("t", frozenset({0}))),
        ("a.b:0,12", TopicChoice("a.b", frozenset({0, 12}))),
        ("a.*", TopicChoice("a.*")),
        ("(?:a|b)[.]c:1,2", TopicChoice("(?:a|b)[.]c", frozenset({1, 2}))),
    ],
)
def test_topics_are_chosen_whole_or_by_partition(text: str, choice: TopicChoice):
    assert TopicChoice.parse(text) == choice
    assert TopicChoice.parse(choice.text) == choice


def test_a_name_is_a_name_and_whatever_no_name_holds_makes_a_pattern():
    assert TopicChoice("a.b").names("a.b")
    assert not TopicChoice("a.b").names("axb")
    assert TopicChoice("a.b+").names("axbb")
    assert not TopicChoice("a.b+").names("prefix.a.b")
    assert TopicChoice.parse("a.*:1").covers("a.b", 1)
    assert not TopicChoice.parse("a.*:1").covers("a.b", 0)


def test_a_broken_pattern_is_refused():
    with pytest.raises(ValueError, match="no regular expression"):
        TopicChoice.parse("a[")


@pytest.mark.parametrize("text", ["", ":0", "t:", "t:x", "t:-1", "t:0,,1"])
def test_what_names_no_topic_is_refused(text: str):
    with pytest.raises(ValueError, match=r"write t or t:0,1|not below 0"):
        TopicChoice.parse(text)
