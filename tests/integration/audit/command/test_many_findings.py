"""More findings than a process can hold: the driver's memory stays bounded, and every finding is on the disk."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pyarrow.dataset as ds
import pytest

from drkit.kafka.protocol.record_batch import parse
from drkit.store import open_store
from tests.support.audits.damage import STAMP, Bench, forwarded
from tests.support.clusters import raw
from tests.support.links.batches import batch_bytes
from tests.support.wait import wait_until

pytestmark = [pytest.mark.lab, pytest.mark.spark, pytest.mark.long]

PARTITIONS, RECORDS = 200, 10_000
MOST_MIB = 700
"""The driver's Python at its peak: itself some 250 MiB, its budget of residuals, and what Arrow needs to write them."""


@pytest.mark.timeout(1800)
def test_two_million_findings_are_all_written_and_the_driver_s_memory_is_bounded(lab, unique_name, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'mapping.db'}"
    bench = Bench(lab, open_store(url))
    topic = bench.create(unique_name, partitions=PARTITIONS)
    rows = [(STAMP + n, b"key-%d" % n, b"a value of some length", []) for n in range(RECORDS)]
    batch = forwarded(next(parse(memoryview(batch_bytes(rows)))))
    for partition in range(PARTITIONS):
        produce = partial(raw.produce, lab.bootstrap("primary"), topic, partition, batch)
        assert wait_until(produce, what=f"a leader of partition {partition}") == [0]
    bench.remember(topic, {n: {0: 0, RECORDS - 1: RECORDS - 1} for n in range(PARTITIONS)})  # and none of it is there
    bench.store.close()
    config = tmp_path / "drkit.toml"
    config.write_text(re.sub(r'(?m)^url = ".*"', f'url = "{url}"', lab.config_path.read_text()))
    command = [sys.executable, "-m", "drkit", "audit", "--topic", topic, "--config", str(config), "--output", "json"]
    command += ["--out", str(tmp_path / "out")]

    with (tmp_path / "stdout").open("wb") as output, (tmp_path / "stderr").open("wb") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=tmp_path)
        peak, driver = 0, psutil.Process(process.pid)
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired, psutil.NoSuchProcess):
                peak = max(peak, driver.memory_info().rss)
                process.wait(0.2)

    found = json.loads((tmp_path / "stdout").read_text())
    assert process.returncode == 5, (tmp_path / "stderr").read_text()
    assert found["totals"]["lost"] == found["findings_total"] == PARTITIONS * RECORDS
    assert found["findings_truncated"]
    table = ds.dataset(found["findings_path"], format="parquet", partitioning="hive")
    assert table.count_rows() == PARTITIONS * RECORDS
    by_partition = table.to_table(columns=["partition"])["partition"].value_counts().to_pylist()
    assert {each["counts"] for each in by_partition} == {RECORDS}
    assert peak >> 20 < MOST_MIB
