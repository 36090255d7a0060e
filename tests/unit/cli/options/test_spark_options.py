"""What `--spark-conf` takes."""

from __future__ import annotations

import pytest

from drkit.cli.options.spark import spark_properties, spark_runtime
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


def test_what_spark_runs_on_is_never_downloaded(monkeypatch: pytest.MonkeyPatch):
    def download(*_: object) -> None:
        raise AssertionError("an audit at night must not need a registry")

    monkeypatch.setattr("drkit.lab.toolchain.fetch_missing", download)
    runtime = spark_runtime("local[*]", "1g", ["spark.executor.cores=1"])
    assert (runtime.java_home / "bin" / "java").exists()
    assert not [name for name in runtime.settings if "jars" in name or "packages" in name]
