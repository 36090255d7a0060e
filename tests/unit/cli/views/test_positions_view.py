"""A thousand groups fit on a screen."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from drkit.cli.views.failover_view import print_result
from drkit.cli.views.positions_view import print_positions, sums
from drkit.failover.context.evidence import Judgement
from drkit.failover.context.state_machine import State
from drkit.failover.positions.positions import PlannedPosition, choose_positions
from drkit.failover.snapshot.selection import Edge, Selection
from drkit.model.offsets import Certainty
from tests.unit.failover.plan.test_plan import a_plan
from tests.unit.failover.plan.worlds import Log, moment, position, world
from tests.unit.failover.run.test_run_document import a_result


def many(groups):
    log = Log("r" * 10, stamps=range(0, 10_000, 1000), through=8)
    views = [replace(log.view(at=moment(6000)), partition=p) for p in range(3)]
    stands = [position(n % 11, group=f"g{n:04}", partition=p) for n in range(groups) for p in range(3)]
    return choose_positions(world(views, stands), Selection(), moment(6000))


def printed(positions: tuple[PlannedPosition, ...]) -> list[str]:
    console = Console(file=StringIO(), width=80, color_system=None)
    print_positions(console, positions)
    return console.file.getvalue().splitlines()


def test_groups_are_summed_up_and_those_that_hurt_come_first():
    found = sums(many(1000))
    assert len(found) == 1000
    assert [group.severity for group in found] == sorted(group.severity for group in found)
    assert (found[0].group, found[0].lost, found[0].again, found[0].by) == ("g0010", 6, 6, "timestamp")
    assert found[-1].lost == found[-1].again == 0


def test_a_thousand_groups_fit_on_a_screen():
    lines = printed(many(1000))
    assert len(lines) < 40
    assert all(len(line) <= 80 for line in lines)
    text = " ".join(" ".join(lines).split())
    assert "… and 980 more groups" in text
    assert "by timestamp, conservative; e.g. g0009 t:0" in text
    assert " preserved, exact; e.g. g0000 t:0: the group had read only up to here" in text


def test_a_run_ends_with_the_groups_that_it_left_without_a_place_and_the_commands():
    plan = a_plan()
    left = replace(plan.positions[0], group="late", target_offset=None, strategy=None, reason="not known", existing=1)
    many = tuple(replace(left, group=f"late{n:02}", existing=None) for n in range(12))
    console = Console(file=StringIO(), width=80, color_system=None)
    print_result(console, a_result(plan, positions=(*plan.positions, left, *many)), plan, Judgement(), plan_shown=True)
    text = console.file.getvalue()
    end = text[text.index("no place") :]
    assert "13 groups have no position from this move on 13 partitions of dr" in " ".join(end.split())
    assert "late t:0: not known\n" in end
    assert "what it has committed on dr itself stays: t:0 at 1\n" in end
    assert (
        "  do: kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:1 --group late --topic t:0 --reset-offsets "
        "--to-earliest --execute\n"
    ) in end
    assert "… and 3 more, all of them in --output json" in end
    assert end.count("do: kafka") == 10


def test_a_run_that_has_not_ended_gives_no_commands_yet():
    plan = a_plan()
    left = replace(plan.positions[0], target_offset=None, reason="not known")
    console = Console(file=StringIO(), width=80, color_system=None)
    result = a_result(plan, State.TRANSLATED, positions=(left,))
    print_result(console, result, plan, Judgement(), plan_shown=True)
    assert "no place" not in console.file.getvalue()


def test_a_run_that_was_taken_back_says_what_became_of_its_fence():
    plan = a_plan()
    console = Console(file=StringIO(), width=80, color_system=None)
    result = a_result(plan, State.CANCELLED)
    facts = replace(result.machine.facts, fenced=False, fence_reason="primary is open to its clients")
    result = replace(result, machine=replace(result.machine, facts=facts))
    print_result(console, result, plan, Judgement(), plan_shown=True)
    text = " ".join(console.file.getvalue().split())
    assert "fenced no longer: primary is open to its clients" in text
    assert "UNFENCED" not in text


def test_a_few_positions_are_shown_one_by_one():
    lines = printed(many(2))
    assert lines[0].split() == ["group", "partition", "from", "to", "by", "again", "lost"]
    assert sum(line.startswith("g000") for line in lines) == 6


def test_a_long_name_keeps_its_partition():
    log = Log("r" * 10, stamps=range(0, 10_000, 1000), through=10)
    views = [replace(log.view(), partition=p) for p in range(2)]
    stands = [position(3, group="shop.europe.billing.invoices.nightly", partition=p) for p in range(2)]
    found = choose_positions(world(views, stands), Selection(), None)
    lines = printed(tuple(replace(each, topic="shop.europe.billing.invoices.v2") for each in found))
    assert all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines[1:3]] == ["shop.europe…es.nightly"] * 2
    assert [line.split()[1] for line in lines[1:3]] == ["shop.europe…oices.v2:0", "shop.europe…oices.v2:1"]


def test_what_is_skipped_has_a_column_and_reasons_that_differ_in_numbers_are_one():
    log = Log("r" * 10, stamps=range(0, 10_000, 1000), through=10)
    views = [replace(log.view(), partition=p) for p in range(2)]
    stands = [position(3, group="g"), position(5, group="g", partition=1), position(5, group="h", partition=1)]
    lines = printed(choose_positions(world(views, stands), Selection(edge=Edge.LATEST), None))
    assert lines[0].split() == ["group", "partition", "from", "to", "by", "again", "skipped", "lost"]
    assert [line.split()[-2] for line in lines[1:4]] == ["7", "5", "5"], "most skipped first"
    text = " ".join(" ".join(lines[4:]).split())
    assert text.count("as requested") == 1
    assert "3 positions, e.g. g t:0: the log of the target ends at 10: as requested; 7 offsets" in text


def test_what_exact_is_about_is_said_where_a_moment_or_an_end_of_the_log_decides():
    log = Log("r" * 10, stamps=range(0, 10_000, 1000), through=10)
    seen = world([log.view(at=moment(4000))], [position(8)])
    about = "by timestamp, exact is about where a group had got to"
    for found in (
        choose_positions(seen, Selection(), moment(4000)),
        choose_positions(seen, Selection(edge=Edge.EARLIEST), None),
        many(1000),
    ):
        assert about in " ".join(" ".join(printed(found)).split())
    (by_mapping,) = choose_positions(seen, Selection(), None)
    assert by_mapping.translation is Certainty.EXACT
    assert about not in " ".join(" ".join(printed((by_mapping,))).split())
