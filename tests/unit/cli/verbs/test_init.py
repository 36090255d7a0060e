"""`drkit init` without a cluster: what it writes, and what it refuses."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config import load_config
from drkit.config.template import ClusterDraft, ConfigDraft, Excluded, render

SCHEMAS = Path(__file__).parents[4] / "docs" / "schemas"
BOTH = ("--source", "eu=127.0.0.1:1,127.0.0.2:1", "--target", "127.0.0.1:2", "--offline")


@pytest.fixture
def init(tmp_path: Path):
    def run(*arguments: str, code: int = 0) -> dict:
        command = ["init", "--config", str(tmp_path / "drkit.toml"), "--output", "json", *arguments]
        done = CliRunner().invoke(application(("init",)), command)
        assert done.exit_code == code, done.output
        document = json.loads(done.stdout)
        schema = "error" if "error" in document else "init"
        jsonschema.validate(document, json.loads((SCHEMAS / f"{schema}.schema.json").read_text()))
        return document

    return run


def test_it_writes_a_file_that_reads_well_and_holds_no_secret(init, tmp_path, monkeypatch):
    monkeypatch.setenv("EU_PASSWORD", "s3cret")
    client = [
        "security.protocol=SASL_PLAINTEXT",
        "sasl.mechanisms=PLAIN",
        "sasl.username=me",
        "sasl.password=env:EU_PASSWORD",
    ]
    words = [word for each in client for word in ("--source-client", each)]
    document = init(*BOTH, *words, "--topic", "flights", "--topic", "orders[.].*", "--group", "billing")
    file = tmp_path / "drkit.toml"
    assert file.read_text() == document["text"]
    assert "s3cret" not in document["text"]
    assert file.stat().st_mode & 0o777 == 0o600
    config = load_config(file)
    assert config.clusters["eu"].bootstrap_servers == "127.0.0.1:1,127.0.0.2:1"
    assert config.clusters["eu"].properties()["sasl.password"] == "s3cret"
    (link,) = config.links
    assert (link.source, link.target, link.topics, link.groups) == (
        "eu",
        "dr",
        ("flights", "orders[.].*"),
        ("billing",),
    )
    assert document["connected"] is False
    assert document["topics"] is None


def test_the_measurement_of_latency_is_a_comment_to_be_removed(init, tmp_path):
    """It is off by default, and the page's chart of latency is empty without it."""
    init(*BOTH)
    file = tmp_path / "drkit.toml"
    assert not load_config(file).links[0].canary
    file.write_text(file.read_text().replace("# canary", "canary"))
    assert load_config(file).links[0].canary


def test_it_overwrites_nothing(init, tmp_path):
    (tmp_path / "drkit.toml").write_text("mine")
    assert "exists already" in init(*BOTH, code=3)["error"]["what"]
    assert (tmp_path / "drkit.toml").read_text() == "mine"
    assert init(*BOTH, "--dry-run")["written"] is False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--source", "127.0.0.1:1", "--offline"), "--target is missing, and there is no terminal"),
        (("--source", "a b=127.0.0.1:1", "--target", "h:1", "--offline"), "'a b' is no alias"),
        (("--source", "127.0.0.1", "--target", "h:1", "--offline"), "clusters.primary.bootstrap_servers"),
        (("--source", "x=h:1", "--target", "x=h:2", "--offline"), "are both called x"),
        ((*BOTH, "--topic", "fl(ights"), "links.0.topics"),
        ((*BOTH, "--source-client", "sasl.password=s3cret"), "sasl.password is a secret"),
        ((*BOTH, "--target-client", "linger.ms=5"), "'linger.ms' can't be mapped"),
        ((*BOTH, "--target-client", "client.id"), "'client.id' is not NAME=VALUE"),
        ((*BOTH, "--store", "cassandra://me:s3cret@h/drkit?dc=dr"), "--store holds a password"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_written(init, tmp_path, arguments, says):
    told = init(*arguments, code=2)
    assert says in told["error"]["what"]
    assert told["error"]["remedy"]
    assert "s3cret" not in str(told)
    assert not (tmp_path / "drkit.toml").exists()


def test_a_cluster_that_does_not_answer_leaves_no_file(init, tmp_path):
    told = init("--source", "127.0.0.1:1", "--target", "127.0.0.1:2", "--timeout", "0.5", code=1)
    assert "primary" in told["error"]["what"]
    assert not (tmp_path / "drkit.toml").exists()


def test_what_clusters_hold_can_not_leave_its_comment():
    draft = ConfigDraft(
        ClusterDraft("primary", "h:1"),
        ClusterDraft("dr", "h:2"),
        "env:STORE",
        exclude_topics=(Excluded('a"b', "tools"),),
        remarks=("Found: group x\n[store]\nurl = 'y'\u2028\x1b[31m",),
    )
    text = render(draft)
    found = tomllib.loads(text)
    assert found["store"] == {"url": {"env": "STORE"}}
    assert found["links"][0]["exclude_topics"] == ['a"b']
    assert "\x1b" not in text
