"""`[[relations]]` as it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from drkit.config import load_config
from drkit.model.errors import ConfigError

CLUSTERS = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
"""


def read(folder: Path, relation: str):
    path = folder / "drkit.toml"
    path.write_text(f"{CLUSTERS}\n[[relations]]\n{relation}\n")
    return load_config(path)


def test_a_relation_names_two_topics_and_where_the_key_is(tmp_path: Path):
    config = read(tmp_path, 'child = "items"\nparent = "orders"\nkey = "$.order.id[0]"\ndecoder = "shop.avro:item"')

    (relation,) = config.relations
    assert (relation.child, relation.parent, relation.key) == ("items", "orders", "$.order.id[0]")
    assert (relation.parent_key, relation.decoder, relation.parent_decoder) == ("key", "shop.avro:item", None)


@pytest.mark.parametrize(
    ("relation", "says"),
    [
        ('child = "a"\nparent = "b"\nkey = "order_id"', "JSON path"),
        ('child = "a"\nparent = "a"\nkey = "$.x"', "between two topics"),
        ('child = "a"\nparent = "b"\nkey = "$.x"\ndecoder = "nothing"', "module:function"),
        ('child = "a"\nkey = "$.x"', "parent"),
    ],
)
def test_what_is_no_relation_is_refused_by_name(tmp_path: Path, relation: str, says: str):
    with pytest.raises(ConfigError, match=says) as refused:
        read(tmp_path, relation)
    assert "relations.0" in str(refused.value)
