"""Declared foreign_keys: children that came over without their parents."""

from __future__ import annotations

import json

import pytest

from drkit.audit.run import run_audit
from drkit.cli.wiring.audit_journal import foreign_key_line
from drkit.config.schema.config import ForeignKeyConfig
from drkit.drill.environment.log_surgery import flip
from drkit.model.audit.audit_result import AuditRequest, TopicChoice
from drkit.model.errors import ConfigError
from tests.support.audits.damage import STAMP, Record

pytestmark = [pytest.mark.lab, pytest.mark.spark]


def item(number: int, order: object) -> Record:
    return Record(b"i%d" % number, json.dumps({"order": {"id": order}}).encode(), STAMP + number)


def test_children_without_parents_are_counted_on_both_sides(bench, spark, unique_name, tmp_path):
    orders, items = bench.create(f"{unique_name}.orders", partitions=2), bench.create(f"{unique_name}.items")
    parents = [Record(b"%d" % number, b'{"id": "%d"}' % number, STAMP) for number in range(10)]
    gone = Record(b"77", None, STAMP)  # a tombstone alone is no parent
    # 5 and 77 have no parent anywhere; 8 and 9 have theirs on the source only
    children = [item(n, order) for n, order in enumerate([0, "1", 2, 8, 9, 9, 77, 50, None])] + [
        Record(b"x", b"no json", STAMP),
        Record(b"y", None, STAMP),
    ]
    for alias, arrived in (("primary", parents), ("dr", parents[:8])):
        bench.produce(alias, orders, 0, arrived[::2])
        bench.produce(alias, orders, 1, [*arrived[1::2], gone])
        bench.produce(alias, items, 0, children)
    by_key = ForeignKeyConfig(child=items, parent=orders, key="$.order.id")
    by_value = ForeignKeyConfig(
        child=items,
        parent=orders,
        key="$.order.id",
        parent_key="$.id",
        decoder="json:loads",
        parent_decoder="json:loads",
    )
    config = bench.config.model_copy(update={"foreign_keys": (by_key,)})
    request = AuditRequest(bench.link, str(tmp_path / "one"), (TopicChoice(items),))

    result = run_audit(request, bench.store, config, spark)

    (found,) = result.foreign_keys
    assert result.counts.clean
    assert (found.children, found.keyless) == (8, 2)
    assert (found.orphans, found.orphans_on_source, found.brought) == (5, 2, 3)
    assert [(each.offset, each.key, each.on_source) for each in found.first] == [
        (3, "8", False),
        (4, "9", False),
        (5, "9", False),
        (6, "77", True),
        (7, "50", True),
    ]
    clean = [record for record in children if record.value != b"no json"]  # which the decoder would refuse
    plain = bench.create(f"{unique_name}.plain")
    for alias in ("primary", "dr"):
        bench.produce(alias, plain, 0, clean)
    decoded = bench.config.model_copy(update={"foreign_keys": (by_value.model_copy(update={"child": plain}),)})
    request = AuditRequest(bench.link, str(tmp_path / "two"), (TopicChoice(plain),))
    (same,) = run_audit(request, bench.store, decoded, spark).foreign_keys
    assert (same.children, same.keyless, same.orphans, same.brought, same.unread) == (8, 1, 5, 3, ())


def test_what_can_t_be_read_is_neither_child_nor_parent_and_is_named(bench, spark, unique_name, tmp_path):
    orders, items = bench.create(f"{unique_name}.orders"), bench.create(f"{unique_name}.items")
    parents = [Record(b"%d" % number, b"{}", STAMP) for number in range(10)]
    children = [item(number, number) for number in range(10)]
    for alias in ("primary", "dr"):
        bench.produce(alias, orders, 0, parents, batched=1)
        bench.produce(alias, items, 0, children, batched=1)

    def flipped(alias: str, topic: str, offset: int) -> None:
        flip(bench.lab.dir / "nodes" / f"{alias}-1" / "data" / f"{topic}-0", offset, -1)

    flipped("dr", orders, 4)
    flipped("dr", orders, 5)
    flipped("dr", items, 8)
    flipped("primary", orders, 5)
    flipped("primary", items, 0)
    foreign_key = ForeignKeyConfig(child=items, parent=orders, key="$.order.id")
    config = bench.config.model_copy(update={"foreign_keys": (foreign_key,)})
    request = AuditRequest(bench.link, str(tmp_path / "out"), (TopicChoice(items),))

    (found,) = run_audit(request, bench.store, config, spark).foreign_keys

    assert (found.children, found.orphans, found.orphans_on_source, found.brought) == (9, 2, 1, 1)
    assert set(found.unread) == {
        f"{items}:0 on dr can't be read from offset 8 to 8",
        f"{orders}:0 on dr can't be read from offset 4 to 5",
        f"{items}:0 on primary can't be read from offset 0 to 0",
        f"{orders}:0 on primary can't be read from offset 5 to 5",
    }
    assert "not known for sure: " in foreign_key_line(found)


def test_a_decoder_that_is_not_there_is_a_usage_error(bench, spark, unique_name, tmp_path):
    child, parent = f"{unique_name}.a", f"{unique_name}.b"
    foreign_key = ForeignKeyConfig(child=child, parent=parent, key="$.x", decoder="json:nothing")
    config = bench.config.model_copy(update={"foreign_keys": (foreign_key,)})

    with pytest.raises(ConfigError, match="json:nothing"):
        run_audit(AuditRequest(bench.link, str(tmp_path / "out"), (TopicChoice(child),)), bench.store, config, spark)
