"""What `--spark-conf` takes."""

from __future__ import annotations

import pytest

from drkit.cli.spark import spark_properties
from drkit.model.errors import ConfigError


def test_properties_are_taken_as_spark_names_them():
    given = ["spark.executor.memory=2g", "spark.executor.extraJavaOptions=-Da=b"]

    assert spark_properties(given) == {"spark.executor.memory": "2g", "spark.executor.extraJavaOptions": "-Da=b"}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("executor.memory=2g", "spark.NAME=VALUE"),
        ("spark.executor.memory", "NAME=VALUE"),
        ("spark.master=x", "--master"),
    ],
)
def test_others_are_refused_and_values_are_not_repeated(given: str, says: str):
    with pytest.raises(ConfigError, match=says) as refused:
        spark_properties([given])
    assert "=2g" not in refused.value.what
