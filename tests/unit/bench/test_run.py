import subprocess
import sys

import pytest

from bench.__main__ import chosen
from bench.backlog import Observation, WatchedRun, summary
from bench.cases import BACKLOG, LIVE, STEPS
from bench.processes import ProcessTree
from drkit.model.errors import ConfigError

MIB = 1 << 20


def test_names_are_unique_and_an_unknown_one_is_refused_with_the_list():
    assert len(set(STEPS)) == len(STEPS)
    assert chosen(["live", "large"]) == ["large", "live"]
    with pytest.raises(ConfigError, match=r"'big'.*large"):
        chosen(["big"])


def test_each_target_has_its_case():
    assert [case.records_a_batch for case in BACKLOG if case.named] == [1000, 150, 1]
    assert next(case for case in BACKLOG if case.named).records >= 10_000_000
    assert sum(case.named for case in LIVE) == 1


def test_a_run_is_summed_up_from_its_first_to_its_last_record():
    observations = [
        Observation(2.0, 1_000, 1.0, 100 * MIB),
        Observation(4.0, 400_000, 2.0, 130 * MIB),
        Observation(7.0, 801_000, 3.0, 120 * MIB),
    ]
    run = summary(BACKLOG[0], "drkit", 1, 801_000, WatchedRun(observations, 140 * MIB, True))
    assert (run.seconds, run.records_per_second, run.mb_per_second) == (5.0, 160_000.0, 16.0)
    assert run.cpu_seconds_per_million == pytest.approx(2.5)
    assert (run.launch_seconds, run.launch_cpu_seconds) == (2.0, 1.0)
    assert (run.peak_rss_mib, run.rss_first_half_mib, run.rss_second_half_mib) == (140.0, 130.0, 120.0)


def test_a_run_seen_in_one_look_has_no_rate():
    only = Observation(2.0, 1_000, 1.0, 100 * MIB)
    run = summary(BACKLOG[0], "drkit", 1, 1_000, WatchedRun([only], 100 * MIB, True))
    assert run.records_per_second is None
    assert run.cpu_seconds_per_million is None


def test_a_process_tree_counts_its_children():
    # the kernel counts in ticks of 10 ms: what takes less may count as nothing
    busy = "import time\nwhile time.process_time() < 0.05: pass\nprint(1, flush=True); input()"
    program = f"import subprocess,sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"1\n"  # the grandchild runs
        tree = ProcessTree(child)
        assert tree.cpu_seconds() > 0
        peak, now = tree.peak_rss_bytes(), tree.rss_bytes()
        assert now > 8 * MIB  # two interpreters
        assert peak > 0.9 * now, "one is counted exactly by the kernel, the other page by page of each CPU"
    finally:
        child.communicate(b"\n", timeout=30)
