from datetime import timedelta

import pytest
from pydantic import TypeAdapter, ValidationError

from drkit.failover.journal.journal import POSITION_LIST
from drkit.failover.positions.positions import PlannedPosition, choose_positions
from drkit.failover.snapshot.selection import Selection
from drkit.model.topology import TopicPartition
from tests.unit.failover.plan.worlds import AT, Log, position, world

LATER = AT + timedelta(seconds=1)


def chosen():
    groups = [position(offset, group=f"g{n}")._replace(metadata="") for n, offset in enumerate((3, 3, 9, 3))]
    groups[3] = groups[3]._replace(captured_at=LATER, metadata="kept")
    seen = world([Log("rrrhrrrrr", through=7).view()], groups, committed={("g1", TopicPartition("t", 0)): 1})
    return choose_positions(seen, Selection(), None)


def test_positions_come_back_as_they_were_and_are_written_once_where_groups_share_a_place():
    positions = chosen()
    text = POSITION_LIST.dump_json(positions)
    assert POSITION_LIST.validate_json(text) == positions
    assert text.count(b'"preserved"') + text.count(b'"mapping"') == 2


def test_positions_written_one_by_one_are_read_too():
    positions = chosen()
    text = TypeAdapter(tuple[PlannedPosition, ...]).dump_json(positions)
    assert POSITION_LIST.validate_json(text) == positions


@pytest.mark.parametrize(
    "text", ['{"looked": []}', '{"looked": [null], "shared": [], "groups": [["g", [0]]]}', '[{"group": 1}]']
)
def test_what_is_damaged_is_refused(text):
    with pytest.raises(ValidationError):
        POSITION_LIST.validate_json(text)
