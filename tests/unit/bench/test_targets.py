import pytest

from bench.cases import TIMES
from bench.results import LargeLinkRun, LookupRun, MoveRun, OutageRun, SiteRun, TranslateRun
from bench.targets import Judgement, judge, mapping_bytes_per_million


def verdicts(results) -> dict[str, str]:
    return {each.target: each.verdict for each in judge(results)}


def test_nothing_measured_is_nothing_met(results):
    assert set(verdicts(results).values()) == {"not measured"}


@pytest.mark.parametrize(
    ("measured", "at_least", "verdict"),
    [(5.0, True, "met"), (4.99, True, "not met"), (5.0, False, "met"), (5.01, False, "not met")],
)
def test_a_limit_itself_is_met(measured, at_least, verdict):
    assert Judgement("t", measured, 5.0, "", at_least).verdict == verdict


def test_speed_and_cpu_are_judged_against_the_other_mirror(results, backlog_run):
    results.backlog += [
        backlog_run(),
        backlog_run(peer="mirrormaker", records_per_second=200_000.0, cpu_seconds_per_million=2.9),
    ]
    found = {each.target: each for each in judge(results)}
    speed = found["1,000 a batch: records/s of MirrorMaker 2's"]
    cpu = found["1,000 a batch: its CPU per record of drkit's"]
    assert (speed.measured, speed.verdict, speed.note) == (5.0, "met", "")
    assert (pytest.approx(14.5), "not met") == (cpu.measured, cpu.verdict)


def test_the_median_of_the_repeats_counts(results, backlog_run):
    rates = (100_000.0, 900_000.0, 1_000_000.0)
    results.backlog += [backlog_run(repeat=n, records_per_second=rate) for n, rate in enumerate(rates, 1)]
    results.backlog += [backlog_run(peer="mirrormaker", records_per_second=300_000.0)]
    found = {each.target: each.measured for each in judge(results)}
    assert found["1,000 a batch: records/s of MirrorMaker 2's"] == 3.0


def test_a_shorter_backlog_and_an_unfinished_run_are_named(results, backlog_run):
    results.backlog += [backlog_run(records=600_000), backlog_run(peer="mirrormaker", complete=False)]
    note = next(each.note for each in judge(results) if each.target.startswith("1,000 a batch"))
    assert "600,000 records; the target speaks of 10,000,000" in note
    assert "time ran out" in note


def test_live_is_judged_against_both(results, live_run):
    results.live += [
        live_run(),
        live_run(peer="bare", p99_ms=6.0, cpu_share=0.1),
        live_run(peer="drkit", p99_ms=10.0, cpu_share=0.1),
        live_run(peer="mirrormaker", p99_ms=19.0, cpu_share=0.5),
    ]
    found = verdicts(results)
    assert found["live at 5,000/s: p99 of MirrorMaker 2's"] == "not met"  # 10 of 19 is more than half
    assert found["live at 5,000/s: p99 of a bare forwarder's"] == "not met"  # 10 of 6 is more than 1.6
    assert found["live at 5,000/s: CPU of MirrorMaker 2's"] == "met"
    note = next(each.note for each in judge(results) if each.note.startswith("of a reader"))
    assert note == f"of a reader of the source itself: {8 / 19:.2f} {TIMES}"


def test_memory_is_the_highest_of_the_cases_with_so_many_partitions(results, backlog_run):
    results.backlog += [
        backlog_run(case="large-100p", peak_rss_mib=150.0),
        backlog_run(case="middling-100p", peak_rss_mib=205.0),
        backlog_run(case="single-100p", peak_rss_mib=210.0),
    ]
    found = {each.target: each for each in judge(results)}
    assert found["memory with 100 partitions"].measured == 205.0
    assert "210 MiB" in found["memory with 100 partitions"].note
    assert found["memory with 100 partitions"].verdict == "not met"


def test_one_position_that_is_not_exact_is_one_too_many(results):
    target = "translated positions that aren't exact"
    exact = TranslateRun("drkit", "plain", 600, 600, 600, 0, 0, 0, 0)
    results.translate += [exact, TranslateRun("mirrormaker", "plain", 600, 600, 3, 9999, 99, 0, 0)]
    assert verdicts(results)[target] == "met"
    results.translate.append(TranslateRun("drkit", "compacted", 400, 399, 399, 0, 0, 0, 0))
    found = {each.target: each for each in judge(results)}[target]
    assert (found.measured, found.verdict) == (1, "not met")  # the one without an answer


def test_mapping_bytes_are_those_of_the_longest_backlog(results, backlog_run):
    results.backlog += [backlog_run(mapping_bytes=400), backlog_run(case="single", mapping_bytes=99_999)]
    assert mapping_bytes_per_million(results) == 40.0


def test_lookup_growth_needs_both_sizes(results):
    small, large = LookupRun(10_000, 100, 1.0, 4.0, 1.0), LookupRun(10_000_000, 100, 1.4, 6.4, 300.0)
    results.lookup.append(small)
    assert {each.verdict for each in judge(results) if "lookup" in each.target} == {"not measured"}
    results.lookup.append(large)
    found = [each for each in judge(results) if "lookup" in each.target]
    assert [(each.measured, each.verdict) for each in found] == [(1.4, "met"), (1.6, "not met")]


def test_moving_groups_is_judged_by_the_medians_of_both_tools(results):
    def found():
        return next(each for each in judge(results) if "moving all groups" in each.target)

    assert found().verdict == "not measured"
    results.moves += [
        MoveRun("kafka-consumer-groups", 1000, 50, n, seconds, 9.0) for n, seconds in ((1, 10.0), (2, 14.0))
    ]
    assert found().verdict == "not measured"
    results.moves.append(MoveRun("drkit", 1000, 50, 1, 3.0, 2.0))
    assert (found().measured, found().verdict, found().note) == (4.0, "met", "")
    results.moves.append(MoveRun("drkit", 1000, 50, 2, 9.0, 2.0))
    assert found().verdict == "not met"
    results.moves[:] = [MoveRun(run.tool, 200, 20, 1, 1.0, 1.0) for run in results.moves]
    assert found().note == "200 groups of 20 partitions; the target speaks of 1,000 of 50"


def test_a_sites_failover_is_judged_by_the_slowest_run_of_each_size_and_way_to_die(results):
    def found():
        words = ((each.target.removeprefix("a site of ").partition(" sources are "), each) for each in judge(results))
        return {(size.split()[0], way.split(":")[0]): each for (size, _, way), each in words if way}

    assert {each.verdict for each in found().values()} == {"not measured"}
    assert set(found()) == {(size, way) for size in ("3", "999", "4,998") for way in ("killed", "frozen", "silent")}
    results.sites += [SiteRun("killed", 3, 999, 50, n, seconds, 1.0, {}) for n, seconds in ((1, 3.0), (2, 5.5))]
    killed = found()["999", "killed"]
    assert (killed.measured, killed.verdict, killed.note) == (5.5, "not met", "the slowest of 2")
    assert found()["999", "frozen"].verdict == found()["3", "killed"].verdict == "not measured"
    results.sites[:] = [SiteRun("frozen", 3, 60, 10, 1, 2.0, 1.0, {})]
    assert found()["999", "frozen"].note.endswith("60 groups of 10 partitions; the target speaks of 999 of 50")


def test_a_large_link_is_judged_by_medians_and_the_bare_clients_time_stands_beside(results):
    def found():
        words = "10,000 partitions: "
        return {each.target.removeprefix(words): each for each in judge(results) if each.target.startswith(words)}

    assert {each.verdict for each in found().values()} == {"not measured"}
    commands = {"status": 1.5, "doctor": 3.5, "plan": 2.0, "page": 2.5}
    results.large_links += [
        LargeLinkRun(1000, 10_000, n, 9.0, 2.0, moving, 8.0, 2.0, 4.0, 0.04, 150.0, commands, commands)
        for n, moving in enumerate((12.0, 16.0, 17.0), 1)
    ]
    moving = found()["launch to all moving"]
    assert (moving.measured, moving.verdict, moving.note) == (16.0, "not met", "a bare client made as many in 9.0 s")
    assert (found()["status"].verdict, found()["doctor"].verdict) == ("met", "not met")
    assert found()["a mirror at rest, of a core"].verdict == found()["memory"].verdict == "met"
    results.large_links[:] = [
        LargeLinkRun(100, 1000, 1, 9.0, 2.0, 12.0, 8.0, 2.0, 4.0, 0.04, 150.0, commands, commands)
    ]
    assert "1,000 partitions" in found()["memory"].note


def test_what_a_producer_feels_of_a_backlog_is_judged_in_all_and_in_parts_of_what_it_took_alone(results):
    def found():
        return [each for each in judge(results) if each.target.startswith("a producer on the target")]

    assert [each.verdict for each in found()] == ["not measured"] * 2
    tail = (2.0, 9.0, 12.0, 30.0, 1e6)
    results.outages += [OutageRun("adaptive", n, 5000, 20_000_000, 1.0, p99, *tail) for n, p99 in ((1, 6.0), (2, 4.0))]
    results.outages += [OutageRun("unlimited", 1, 5000, 20_000_000, 1.0, 2.0, 5.0, 80.0, 90.0, 9.0, 3e6)]
    assert [(each.measured, each.verdict) for each in found()] == [(9.0, "met"), (2.25, "not met")]
    results.outages[:] = [OutageRun("adaptive", 1, 500, 2_000_000, 1.0, 6.0, *tail)]
    assert "500 partitions; the target speaks of 5,000" in found()[0].note
