"""What a running process takes over of a configuration that was read again, and what it refuses, by key."""

from pathlib import Path

import pytest

from drkit.config import Config, load_config
from drkit.config.reload import FIXED, FIXED_SERVE, LINK_RELOADED, reload_config
from drkit.config.schema.config import LinkConfig
from drkit.model.errors import ConfigError

TEXT = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
[clusters.other]
bootstrap_servers = "127.0.0.1:3"

[store]
url = "sqlite:///drkit.db"

[[links]]
source = "primary"
target = "dr"
topics = ["flights", "orders"]
rename = { "orders" = "orders-eu" }

[objectives]
rpo_seconds = 5
"""
LINK_VALUES = {
    "topics": '["flights", "orders", "more"]',
    "exclude_topics": '["less"]',
    "groups": '["billing"]',
    "exclude_groups": '["tools"]',
    "topic_settings": "{ replication_factor = 3 }",
    "deletions": '"mirror"',
    "deletion_limit": "7",
    "timeline": "{ hours = 2 }",
    "canary": "true",
    "range_digests": "false",
    "max_bytes_per_second": "1000",
    "catch_up": "{ adaptive = false }",
    "buffer_bytes": "67108864",
    "offsets": '"translate"',
    "isolation": '"read_uncommitted"',
    "acls": '"copy"',
    "filter": '"my.module:keep"',
    "transform": '"my.module:change"',
    "provenance": "true",
}
"""Another value of each key of a link that can be changed by itself."""


@pytest.fixture
def read(tmp_path: Path):
    def _read(text: str) -> Config:
        path = tmp_path / "drkit.toml"
        path.write_text(text)
        return load_config(path)

    return _read


def with_link(key: str, value: str) -> str:
    lines = [line for line in TEXT.splitlines() if not line.startswith(f"{key} =")]
    lines.insert(lines.index('target = "dr"') + 1, f"{key} = {value}")
    return "\n".join(lines)


def test_nothing_new_changes_nothing(read):
    current = read(TEXT)
    found = reload_config(current, read(TEXT + "\n# a remark\n"), FIXED)
    assert (found.config, found.changed, found.refused) == (current, (), ())


def test_every_key_of_a_link_is_tried_here():
    assert LINK_VALUES.keys() | {"source", "target", "policy", "rename"} == LinkConfig.model_fields.keys()


@pytest.mark.parametrize("key", LINK_VALUES)
def test_each_key_of_a_link_is_taken_over_or_refused_by_its_name(read, key):
    current, fresh = read(TEXT), read(with_link(key, LINK_VALUES[key]))
    assert getattr(fresh.links[0], key) != getattr(current.links[0], key)
    found = reload_config(current, fresh, FIXED)
    link = found.config.links[0].link()
    if key in LINK_RELOADED:
        assert link == fresh.links[0].link()
        assert not found.refused
        assert all(each.startswith(f"links.0.{key}") and each.endswith("(primary->dr)") for each in found.changed)
    else:
        assert link == current.links[0].link()
        assert not found.changed
        assert [each.key for each in found.refused] == [f"links.0.{key} (primary->dr)"]
        assert found.refused[0].reason


def test_what_may_change_takes_effect_beside_what_is_refused(read):
    current = read(TEXT)
    text = with_link("topics", '["flights", "orders", "more"]').replace("127.0.0.1:1", "127.0.0.1:9")
    fresh = read(text.replace("rpo_seconds = 5", "rpo_seconds = 6").replace("drkit.db", "other.db"))
    found = reload_config(current, fresh, FIXED)
    assert found.config.clusters == current.clusters
    assert found.config.store == current.store
    assert found.config.file == current.file
    assert found.config.objectives.rpo_seconds == 6
    assert found.config.links[0].link().covers_topic("more")
    assert found.config.links[0].link().target_topic("orders") == "orders-eu"
    assert set(found.changed) == {"links.0.topics (primary->dr)", "objectives.rpo_seconds"}
    assert {each.key for each in found.refused} == {"clusters.primary.bootstrap_servers", "store.url"}
    again = reload_config(found.config, fresh, FIXED)
    assert again.changed == ()
    assert again.refused == found.refused


def test_links_are_told_by_their_names_and_neither_come_nor_go(read):
    current = read(TEXT)
    other = '[[links]]\nsource = "dr"\ntarget = "other"\ntopics = ["x"]\n\n'
    found = reload_config(current, read(TEXT.replace("[[links]]", other + "[[links]]", 1)), FIXED)
    assert found.config.links == current.links
    assert [each.key for each in found.refused] == ["links.0"]
    assert "dr->other is new" in found.refused[0].reason
    found = reload_config(current, read(TEXT.replace('target = "dr"', 'target = "other"')), FIXED)
    assert found.config.links == current.links
    assert {each.key for each in found.refused} == {"links.0", "links (primary->dr)"}


def test_the_page_keeps_where_it_listens(read):
    current, fresh = read(TEXT), read(TEXT + '[serve]\nlisten = "127.0.0.1:9"\n')
    assert [each.key for each in reload_config(current, fresh, FIXED_SERVE).refused] == ["serve.listen"]
    assert reload_config(current, fresh, FIXED).changed == ("serve.listen",)


def test_a_change_that_fits_only_with_a_refused_one_is_refused_whole(read):
    """Without `orders` the rename that stays is of no topic of the link."""
    current = read(TEXT)
    fresh = read(TEXT.replace('"flights", "orders"', '"flights"').replace('rename = { "orders" = "orders-eu" }', ""))
    with pytest.raises(ConfigError, match="doesn't mirror 'orders'"):
        reload_config(current, fresh, FIXED)


def test_topics_that_other_links_write_too_are_refused_whole(read):
    """Links of a cycle that begin to carry one topic both ways can't translate its offsets any more."""
    both = TEXT.replace('rename = { "orders" = "orders-eu" }', "provenance = true")
    both += '[[links]]\nsource = "dr"\ntarget = "primary"\ntopics = ["carriers"]\nprovenance = true\n'
    current, fresh = read(both), read(both.replace('["carriers"]', '["carriers", "flights"]'))
    assert [link.link().shares_target for link in (*current.links, *fresh.links)] == [False, False, True, True]
    with pytest.raises(ConfigError, match="several writers"):
        reload_config(current, fresh, FIXED)
