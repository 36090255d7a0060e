"""`[[foreign_keys]]` as it is read."""

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


def read(folder: Path, foreign_key: str):
    path = folder / "drkit.toml"
    path.write_text(f"{CLUSTERS}\n[[foreign_keys]]\n{foreign_key}\n")
    return load_config(path)


def test_a_foreign_key_names_two_topics_and_where_the_key_is(tmp_path: Path):
    config = read(tmp_path, 'child = "items"\nparent = "orders"\nkey = "$.order.id[0]"\ndecoder = "shop.avro:item"')

    (foreign_key,) = config.foreign_keys
    assert (foreign_key.child, foreign_key.parent, foreign_key.key) == ("items", "orders", "$.order.id[0]")
    assert (foreign_key.parent_key, foreign_key.decoder, foreign_key.parent_decoder) == ("key", "shop.avro:item", None)


@pytest.mark.parametrize(
    ("foreign_key", "says"),
    [
        ('child = "a"\nparent = "b"\nkey = "order_id"', "JSON path"),
        ('child = "a"\nparent = "a"\nkey = "$.x"', "between two topics"),
        ('child = "a"\nparent = "b"\nkey = "$.x"\ndecoder = "nothing"', "module:function"),
        ('child = "a"\nkey = "$.x"', "parent"),
    ],
)
def test_what_is_no_foreign_key_is_refused_by_name(tmp_path: Path, foreign_key: str, says: str):
    with pytest.raises(ConfigError, match=says) as refused:
        read(tmp_path, foreign_key)
    assert "foreign_keys.0" in str(refused.value)
