import subprocess
import sys

import pytest

from bench.__main__ import BACKLOG, CASES, chosen
from bench.backlog import Observation, WatchedRun, summary
from bench.processes import ProcessTree
from drkit.model.errors import ConfigError

MIB = 1 << 20


def test_names_are_unique_and_an_unknown_one_is_refused_with_the_list():
    assert len(CASES) == 13 + 2 + 3 + 5
    assert chosen(["live", "large"]) == ["large", "live"]
    with pytest.raises(ConfigError, match=r"'big'.*large"):
        chosen(["big"])


def test_each_target_has_its_case():
    named = {case.name: case for case in BACKLOG}
    assert [named[name].records_a_batch for name in ("large", "middling", "single")] == [1000, 150, 1]
    assert named["large"].shape(full=True).loaded_records >= 10_000_000


def test_a_run_is_summed_up_from_its_first_to_its_last_record():
    observations = [
        Observation(2.0, 1_000, 1.0, 100 * MIB),
        Observation(4.0, 400_000, 2.0, 130 * MIB),
        Observation(7.0, 801_000, 3.0, 120 * MIB),
    ]
    assert summary(100, WatchedRun(observations, 140 * MIB)) == {
        "mirrored_records": 801_000,
        "seconds": 5.0,
        "records_per_second": 160_000.0,
        "mb_per_second": 16.0,
        "cpu_seconds": 2.0,
        "cpu_seconds_per_million": 2.5,
        "launch_seconds": 2.0,
        "launch_cpu_seconds": 1.0,
        "peak_rss_mib": 140.0,
        "rss_first_half_mib": 130.0,
        "rss_second_half_mib": 120.0,
    }


def test_a_run_seen_in_one_look_has_no_rate():
    only = Observation(2.0, 1_000, 1.0, 100 * MIB)
    found = summary(100, WatchedRun([only], 100 * MIB))
    assert found["records_per_second"] is None
    assert found["cpu_seconds_per_million"] is None


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
