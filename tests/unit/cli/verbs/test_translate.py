"""`drkit translate` over a store that a mirror filled: groups, offsets, what is unknown.

No cluster answers here, so nothing is exact (tests/integration/mirror/lost_records/test_translate_now.py has clusters).
"""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.mapping import Translator
from drkit.model.link_state import SOURCE_TRUNCATED, Direction, LinkControl, Problem
from drkit.model.offsets import GroupPosition, OffsetMapping, Watermark
from drkit.model.topology import LinkId, TopicPartition
from drkit.store import open_store
from drkit.store.link_notes import replace_positions

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "schemas" / "translate.schema.json").read_text())
AT = datetime(2026, 11, 20, 4, 2, 59, 123000, UTC)
FORWARD, OTHER = LinkId("primary", "dr"), LinkId("east", "dr")

CONFIG = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.east]
bootstrap_servers = "127.0.0.1:2"
[clusters.dr]
bootstrap_servers = "127.0.0.1:3"
[store]
url = "sqlite:///drkit.db"
[[links]]
source = "primary"
target = "dr"
topics = ["flights", "orders"]
[[links]]
source = "east"
target = "dr"
topics = ["flights"]
policy = "prefix"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "drkit.toml"
    file.write_text(CONFIG)
    return file


@pytest.fixture
def filled(config: Path) -> Path:
    with closing(open_store(f"sqlite:///{config.parent}/drkit.db")) as store:
        for partition in (0, 1):
            store.append_mappings(FORWARD, [OffsetMapping("flights", partition, 0, *p) for p in ((100, 0), (200, 90))])
            store.put_watermarks(FORWARD, [Watermark("flights", partition, 0, 300, 190, 100, 320, 0, AT)])
        store.append_mappings(OTHER, [OffsetMapping("flights", 0, 0, 0, 7)])
        store.put_watermarks(OTHER, [Watermark("flights", 0, 0, 50, 57, 0, 50, 0, AT)])
        store.put_group_positions(
            FORWARD,
            [
                GroupPosition("billing", "flights", 0, 195, "", AT),
                GroupPosition("billing", "flights", 1, 310, "", AT),
                GroupPosition("billing", "orders", 0, 5, "", AT),
                GroupPosition("audit", "flights", 0, 250, "", AT),
            ],
        )
        store.put_group_positions(OTHER, [GroupPosition("audit", "flights", 0, 20, "", AT)])
    return config


def run(config: Path, *arguments: str):
    return CliRunner().invoke(application(), ["translate", "--config", str(config), *arguments])


def positions(config: Path, *arguments: str) -> list[dict]:
    done = run(config, "--output", "json", *arguments)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    jsonschema.validate(document, SCHEMA)
    found: list[dict] = document["positions"]
    return found


def short(found: list[dict]) -> list[tuple]:
    return [
        (p["group"], p["topic"], p["partition"], p["source_offset"], p["target_offset"], p["translation"])
        for p in found
    ]


def test_a_groups_captured_positions(filled):
    found = positions(filled, "--group", "billing")
    assert short(found) == [
        ("billing", "flights", 0, 195, 0, "conservative"),
        ("billing", "flights", 1, 310, 190, "conservative"),
        ("billing", "orders", 0, 5, None, "unavailable"),
    ]
    mapped, ahead, nothing = found
    assert mapped["reason"].startswith("whether the store is older than its copy on dr isn't known: ")
    assert mapped["reason"].endswith(
        "nothing is skipped from target offset 0 on, where the mapping row of source offset 100 begins"
    )
    assert (mapped["reread"], mapped["skipped"]) == (None, 0)
    assert "10 offsets ahead of what is mirrored" in ahead["reason"]
    assert nothing["reason"] == "the mirror has recorded nothing for orders:0 yet"
    assert (nothing["reread"], nothing["skipped"]) == (None, None), "what isn't known is null"
    assert mapped["captured_at"] == "2026-11-20T04:02:59.123Z"


def test_all_links_unless_one_is_named(filled):
    found = positions(filled, "--group", "audit")
    assert [(p["link"], p["target_topic"], p["target_offset"]) for p in found] == [
        ("primary->dr", "flights", 90),
        ("east->dr", "east.flights", 7),
    ]
    assert [p["link"] for p in positions(filled, "--group", "audit", "--link", "east->dr")] == ["east->dr"]


def test_all_groups_and_several_groups(filled):
    everything = positions(filled, "--all-groups")
    assert len(everything) == 5
    assert positions(filled, "--group", "audit", "--group", "billing", "--link", "primary->dr") == everything[:4]


@pytest.mark.parametrize("where", [("--topic", "flights:1"), ("--topic", "flights", "--partition", "1")])
def test_a_groups_positions_on_some_partitions(filled, where):
    assert short(positions(filled, "--group", "billing", *where)) == [
        ("billing", "flights", 1, 310, 190, "conservative")
    ]


def test_any_offset_in_both_ways_of_writing_it(filled):
    for where in (("--topic", "flights", "--partition", "0"), ("--topic", "flights:0")):
        found = positions(filled, *where, "--offset", "250", "--link", "primary->dr")
        assert short(found) == [(None, "flights", 0, 250, 90, "conservative")]
        assert found[0]["captured_at"] is None


def test_one_offset_on_several_partitions_and_links(filled):
    found = positions(filled, "--topic", "flights:0,1,7", "--offset", "40")
    assert [(p["link"], p["partition"], p["target_offset"], p["translation"]) for p in found] == [
        ("primary->dr", 0, 0, "conservative"),
        ("east->dr", 0, 7, "conservative"),
        ("primary->dr", 1, 0, "conservative"),
        ("east->dr", 1, None, "unavailable"),
        ("primary->dr", 7, None, "unavailable"),
        ("east->dr", 7, None, "unavailable"),
    ]
    assert found[0]["reason"].endswith("from target offset 0 on, where the target's log begins"), "a row may be lost"


def test_the_way_back_of_a_link_that_is_turned_round(filled):
    with closing(open_store(f"sqlite:///{filled.parent}/drkit.db")) as store:
        back = FORWARD.reversed()
        store.set_link_control(LinkControl(FORWARD, Direction.REVERSED, 1, AT), expected_version=None)
        store.append_mappings(back, [OffsetMapping("orders", 0, 0, 0, 1000)])
        store.put_watermarks(back, [Watermark("orders", 0, 0, 9, 1009, 0, 9, 0, AT)])
    found = positions(filled, "--topic", "orders:0", "--offset", "5")
    assert [(p["link"], p["target_offset"]) for p in found] == [("primary->dr", None), ("dr->primary", 1005)]


def test_for_people(filled):
    done = run(filled, "--group", "billing")
    assert done.exit_code == 0
    words = " ".join(done.stdout.split())
    assert "billing flights:0 195 0 conservative" in words
    assert "orders:0 5 ? unavailable:" in words


def test_an_unknown_group_is_refused_with_those_that_are_known(filled):
    done = run(filled, "--group", "biling", "--output", "json")
    assert done.exit_code == 3
    error = json.loads(done.stdout)["error"]
    assert "no position of group 'biling' is captured on primary->dr, east->dr" in error["what"]
    assert error["remedy"] == "Known groups: audit, billing"


def test_a_group_without_a_position_on_the_topic_is_refused(filled):
    done = run(filled, "--group", "audit", "--topic", "orders")
    assert done.exit_code == 3
    assert "group 'audit' has no captured position on orders" in done.stderr


def test_a_topic_that_no_link_carries_is_refused(filled):
    done = run(filled, "--topic", "weather:0", "--offset", "1")
    assert done.exit_code == 3
    assert "no topic 'weather' is mirrored on primary->dr, east->dr" in done.stderr


def test_a_store_that_is_not_there_is_refused_with_what_leads_on_and_is_not_created(config):
    done = run(config, "--topic", "orders:0", "--offset", "1")
    assert done.exit_code == 3
    assert f"there is no store {config.parent / 'drkit.db'}" in done.stderr
    assert "drkit store recover --from" in done.stderr
    assert not (config.parent / "drkit.db").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "nothing to translate is given"),
        (("--offset", "5"), "--offset is given without --topic"),
        (("--partition", "5"), "--partition is given without --topic"),
        (("--topic", "flights"), "--topic is given without --offset"),
        (("--topic", "flights", "--offset", "5"), "no partition of flights is named"),
        (("--topic", "flights:x", "--offset", "5"), "is not a topic"),
        (("--topic", "flights:0", "--partition", "0", "--offset", "5"), "both name partitions"),
        (("--group", "g", "--offset", "5"), "--offset doesn't go with groups"),
        (("--group", "g", "--all-groups"), "exclude each other"),
        (("--all-groups", "--link", "dr->primary"), "no link has this name or matches this pattern"),
        (("--topic", "flights:0", "--offset", "-1"), "greater than or equal to 0"),
        (("--topic", "flights", "--partition", "-1", "--offset", "1"), "greater than or equal to 0"),
    ],
)
def test_flags_that_do_not_go_together_are_usage_errors(filled, arguments, word):
    done = run(filled, *arguments)
    assert done.exit_code == 2
    assert word in " ".join(done.stderr.split())


def test_a_position_that_came_back_with_a_source_that_was_set_back_is_not_exact(filled, monkeypatch):
    """As in status and in a failover's plan. The rows alone place it exactly: here no cluster answers."""
    tp = TopicPartition("flights", 0)
    with closing(open_store(f"sqlite:///{filled.parent}/drkit.db")) as store:
        (before,) = (each for each in store.group_positions(FORWARD) if (each.group, each.tp) == ("billing", tp))
        replace_positions(store, FORWARD, [before], [before._replace(offset=150)])
    parted = [Problem(SOURCE_TRUNCATED, *tp, "why", "do", True, AT, 180)]
    for problems, certainty in (([], "exact"), (parted, "conservative")):
        monkeypatch.setattr(
            "drkit.cli.verbs.mirroring.translate._translator",
            lambda run, link, _, known=problems: (Translator(run.store(), link.id), known),
        )
        (found,) = positions(filled, "--group", "billing", "--topic", "flights:0", "--link", "primary->dr")
        assert (found["target_offset"], found["translation"]) == (50, certainty)
    assert found["reread"] is None
    assert "had committed 195 before" in found["reason"]
