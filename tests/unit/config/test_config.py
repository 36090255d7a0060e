"""Reading drkit.toml: what is accepted, and how what is wrong is named."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

import drkit
from drkit.config import load_config
from drkit.config.environment import _TOLD as TOLD
from drkit.config.environment import cache_dir, forget_foreign_secrets
from drkit.config.load import check_variables
from drkit.config.schema.config import Config, reveal
from drkit.model.errors import ConfigError, ExitCode
from drkit.model.topology import LinkId

GOOD = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:19092"
[clusters.primary.client]
"security.protocol" = "SASL_SSL"
"sasl.password" = { env = "TEST_PRIMARY_PASSWORD" }

[clusters.dr]
bootstrap_servers = "dr-1:9092,dr-2:9092"

[store]
url = "sqlite:///state/drkit.db"

[[links]]
source = "primary"
target = "dr"
topics = ["flights", "orders[.].*"]

[objectives]
rpo_records = 0
rpo_seconds = 5
rto_seconds = 60
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEST_PRIMARY_PASSWORD", "s3cret")

    def _write(text: str) -> Path:
        path = tmp_path / "drkit.toml"
        path.write_text(text)
        return path

    return _write


def error_of(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    assert caught.value.exit_code is ExitCode.USAGE
    return str(caught.value)


def test_the_contracts_example_is_read(write):
    config = load_config(write(GOOD))
    link = config.links[0].link()
    assert link.id == LinkId("primary", "dr")
    assert link.covers_topic("orders.items")
    assert not link.covers_topic("orders")
    assert not link.covers_topic("__consumer_offsets")
    assert config.objectives.rto_seconds == 60
    assert reveal(config.clusters["primary"].client["sasl.password"]) == "s3cret"


def test_a_secret_is_never_in_the_representation(write):
    text = GOOD.replace('{ env = "TEST_PRIMARY_PASSWORD" }', '"pl41n"').replace(
        "sqlite:///state/drkit.db", "cassandra://me:pw9@h/drkit"
    )
    config = load_config(write(text))
    assert "pl41n" not in repr(config)
    assert "pw9" not in repr(config)


def test_a_relative_sqlite_path_is_beside_the_file(write):
    path = write(GOOD)
    assert load_config(path).store.plain_url == f"sqlite:///{path.parent}/state/drkit.db"


def test_environment_overrides_the_file(write, monkeypatch):
    monkeypatch.setenv("DRKIT_STORE__URL", "cassandra://h1/drkit")
    monkeypatch.setenv("DRKIT_CLUSTERS__DR__BOOTSTRAP_SERVERS", "elsewhere:1")
    config = load_config(write(GOOD))
    assert config.store.plain_url == "cassandra://h1/drkit"
    assert config.clusters["dr"].bootstrap_servers == "elsewhere:1"
    assert config.clusters["primary"].bootstrap_servers == "127.0.0.1:19092"


@pytest.mark.parametrize("section", list(Config.model_fields))
def test_a_variable_of_any_section_is_read(write, monkeypatch, section):
    """None may be ignored: an unknown key in it is an error."""
    monkeypatch.setenv(f"DRKIT_{section.upper()}__0__NO_SUCH_KEY", "x")
    with pytest.raises(ConfigError, match=rf"(?i){section}"):
        load_config(write(GOOD))


def test_a_variable_gives_a_key_of_one_link(write, monkeypatch):
    monkeypatch.setenv("DRKIT_LINKS__0__OFFSETS", "translate")
    monkeypatch.setenv("DRKIT_LINKS__0__TOPICS", '["only[.].*"]')
    links = load_config(write(GOOD)).links
    assert (links[0].offsets, links[0].topics) == ("translate", ("only[.].*",))
    assert (links[0].source, links[0].target) == ("primary", "dr")


def test_a_variable_of_a_link_that_is_not_there_is_refused(write, monkeypatch):
    monkeypatch.setenv("DRKIT_LINKS__3__OFFSETS", "translate")
    with pytest.raises(ConfigError, match="DRKIT_LINKS__3__OFFSETS: links has no '3'") as refused:
        load_config(write(GOOD))
    assert "DRKIT_LINKS" in refused.value.remedy


def test_a_variable_whose_name_a_shell_can_write_gives_a_client_property_and_finds_any_alias(write, monkeypatch):
    monkeypatch.setenv("DRKIT_CLUSTERS__EU_WEST__CLIENT__CLIENT_ID", "here")
    monkeypatch.setenv("DRKIT_CLUSTERS__EU_WEST__BOOTSTRAP_SERVERS", "elsewhere:1")
    config = load_config(write(GOOD + '\n[clusters.eu-West]\nbootstrap_servers = "h:1"\n'))
    assert set(config.clusters) == {"primary", "dr", "eu-West"}
    assert config.clusters["eu-West"].bootstrap_servers == "elsewhere:1"
    assert config.clusters["eu-West"].properties()["client.id"] == "here"


def test_a_single_key_is_over_its_whole_table(write, monkeypatch):
    monkeypatch.setenv("DRKIT_OBJECTIVES", '{"rto_seconds": 60, "rpo_seconds": 7}')
    monkeypatch.setenv("DRKIT_OBJECTIVES__RTO_SECONDS", "61")
    objectives = load_config(write(GOOD)).objectives
    assert (objectives.rto_seconds, objectives.rpo_seconds) == (61, 7)


def test_a_password_that_begins_like_a_list_is_a_text(write, monkeypatch):
    monkeypatch.setenv("DRKIT_CLUSTERS__DR__CLIENT__SASL_PASSWORD", "[a word")
    assert load_config(write(GOOD)).clusters["dr"].client["sasl.password"].get_secret_value() == "[a word"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("links", '{source = "primary", target = "dr"}', "links: it has to be a list of tables, [[links]]"),
        ("objectives", "5", "objectives: it has to be a table"),
    ],
)
def test_a_value_of_another_kind_is_named_in_the_words_of_the_file(write, key, value, said):
    assert said in error_of(write(f"{key} = {value}\n[clusters.a]\nbootstrap_servers = 'h:1'\n"))


def test_a_variable_that_names_no_section_is_refused(write, monkeypatch):
    monkeypatch.setenv("DRKIT_STROE__URL", "cassandra://h1/drkit")
    with pytest.raises(ConfigError, match="DRKIT_STROE__URL names no section") as refused:
        load_config(write(GOOD))
    assert "Did you mean DRKIT_STORE__URL?" in refused.value.remedy


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DRKIT_STORE_URL", "DRKIT_STORE__URL"),
        ("DRKIT_CONFGI", "DRKIT_CONFIG"),
        ("DRKIT_OBJECTIVES_RPO_RECORDS", "DRKIT_OBJECTIVES__RPO_RECORDS"),
        ("DRKIT_SOMETHING_ELSE", None),
    ],
)
def test_a_variable_that_drkit_does_not_read_is_refused(write, monkeypatch, name, meant):
    monkeypatch.setenv(name, "x")
    with pytest.raises(ConfigError, match=f"the environment variable {name} is not one that drkit reads") as refused:
        load_config(write(GOOD))
    assert (f"Did you mean {meant}?" in refused.value.remedy) == (meant is not None)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DRKIT_STORE__URI", "x", "DRKIT_STORE__URI: store.uri: unknown key. Did you mean DRKIT_STORE__URL?"),
        (
            "DRKIT_CLUSTERS__DR__BOOTSTRAP_SERVER",
            "h:1",
            "clusters.dr.bootstrap_server: unknown key. Did you mean DRKIT_CLUSTERS__DR__BOOTSTRAP_SERVERS?",
        ),
        ("DRKIT_OBJECTIVES__RPO_RECORDS", "many", "DRKIT_OBJECTIVES__RPO_RECORDS: objectives.rpo_records: "),
        ("DRKIT_OBJECTIVES", '{"rpo_recrods": 1}', "DRKIT_OBJECTIVES: objectives.rpo_recrods: unknown key"),
        ("DRKIT_LINKS__0__OFSETS", "x", "links.0.ofsets: unknown key. Did you mean DRKIT_LINKS__0__OFFSETS?"),
        ("DRKIT_LINKS__0__TOPICS", "x", "DRKIT_LINKS__0__TOPICS: links.0.topics: it has to be a list"),
        ("DRKIT_CLUSTERS__DR__CLIENT__LINGER_MS", "1", "CLIENT__LINGER_MS: clusters.dr.client: 'linger.ms' can't be"),
    ],
)
def test_what_a_variable_gets_wrong_is_blamed_on_it_and_not_on_the_file(write, monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    path = write(GOOD)
    message = error_of(path)
    assert "the environment variable " in message
    assert said in message
    assert str(path) not in message


def test_a_variable_that_a_secret_is_read_from_is_a_known_name(write, monkeypatch):
    monkeypatch.setenv("DRKIT_PRIMARY_PASSWORD", "word")
    path = write(GOOD.replace("TEST_PRIMARY_PASSWORD", "DRKIT_PRIMARY_PASSWORD"))
    assert load_config(path).clusters["primary"].properties()["sasl.password"] == "word"
    check_variables(path)


def test_a_lab_s_configuration_is_not_refused_for_the_secrets_of_another_one(write, monkeypatch):
    monkeypatch.setenv("DRKIT_PRIMARY_PASSWORD", "word")
    monkeypatch.setenv("DRKIT_OBJECTIVES__RPO_SECONDS", "7")
    monkeypatch.setenv("DRKIT_SERVE", '{"listen": "127.0.0.1:1"}')
    path = write(GOOD)
    with pytest.raises(ConfigError, match="DRKIT_PRIMARY_PASSWORD is not one that drkit reads"):
        load_config(path)
    forget_foreign_secrets()
    assert load_config(path).objectives.rpo_seconds == 7
    assert load_config(path).serve.listen == "127.0.0.1:1"
    monkeypatch.setenv("DRKIT_JAVAHOME", "/j")
    forget_foreign_secrets()
    with pytest.raises(ConfigError, match="Did you mean DRKIT_JAVA_HOME"):
        load_config(path)


@pytest.mark.parametrize("together", TOLD, ids=lambda names: " ".join(sorted(names)))
def test_what_drkit_tells_a_hook_or_a_command_is_known_as_a_whole_and_one_alone_is_refused(
    write, monkeypatch, together
):
    """drkit reads none of them: DRKIT_LINK, set by hand, passed `config check` and did nothing."""
    for name in together:
        monkeypatch.setenv(name, "x")
    path = write(GOOD)
    assert load_config(path).links
    for name in together:
        monkeypatch.delenv(name)
    for name in together:
        monkeypatch.setenv(name, "x")
        for check in (load_config, check_variables):
            with pytest.raises(ConfigError, match=f"{name} is not one that drkit reads: it sets it for its hooks"):
                check(path)
        monkeypatch.delenv(name)


def test_a_hook_inside_a_command_has_the_variables_of_both(write, monkeypatch):
    for name in TOLD[0] | TOLD[4]:
        monkeypatch.setenv(name, "x")
    assert load_config(write(GOOD)).links


def test_all_that_drkit_sets_for_others_is_known():
    """A wave's command and a site run's hook could call no drkit: two names were not known."""
    package = Path(drkit.__file__).parent
    folders = ("failover", "directory", "observe", "cli/wiring")
    sources = [file.read_text() for folder in folders for file in (package / folder).rglob("*.py")]
    told = {name for text in sources for name in re.findall(r'"(DRKIT_[A-Z_]+)":', text)}
    assert {"DRKIT_HOOK", "DRKIT_WAVE", "DRKIT_SITE"} <= told
    assert told == set().union(*TOLD)


def test_what_can_t_be_read_twice_is_left_to_the_command_that_reads_it(monkeypatch):
    """`--config <(…)` is a pipe."""
    monkeypatch.setenv("DRKIT_PRIMARY_PASSWORD", "word")
    reading, writing = os.pipe()
    try:
        check_variables(Path(f"/dev/fd/{reading}"))
    finally:
        os.close(reading)
        os.close(writing)


def test_the_path_may_come_from_the_environment(write, monkeypatch):
    monkeypatch.setenv("DRKIT_CONFIG", str(write(GOOD)))
    assert load_config().links[0].source == "primary"


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (("rpo_records = 0", "rpo_recrods = 0"), ["objectives.rpo_recrods", "unknown key"]),
        (('source = "primary"', 'source = "primry"'), ["links.0.source", "'primry'", "dr, primary"]),
        (('source = "primary"', 'source = "dr"'), ["links.0", "same cluster"]),
        (('"flights"', '"fl(ights"'), ["links.0.topics.0", "regular expression"]),
        (('"127.0.0.1:19092"', '"127.0.0.1"'), ["clusters.primary.bootstrap_servers", "host:port"]),
        (('"security.protocol"', '"linger.ms"'), ["clusters.primary.client", "'linger.ms'", "known are"]),
        (("rpo_seconds = 5", "rpo_seconds = -5"), ["objectives.rpo_seconds", "greater than or equal to 0"]),
        (("TEST_PRIMARY_PASSWORD", "TEST_UNSET"), ['clusters.primary.client."sasl.password"', "TEST_UNSET is not set"]),
        (('target = "dr"', 'target = "dr"\npolicy = "sideways"'), ["links.0.policy", "'identity' or 'prefix'"]),
        (("[objectives]", "[objectives"), ["not valid TOML", "line"]),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(write, change, names):
    assert change[0] in GOOD
    path = write(GOOD.replace(*change, 1))
    message = error_of(path)
    for name in [str(path), *names]:
        assert name in message


def test_a_missing_file_says_what_to_do(tmp_path):
    assert "drkit lab up" in error_of(tmp_path / "none.toml")


def test_a_link_given_twice_is_refused(write):
    twice = GOOD + '\n[[links]]\nsource = "primary"\ntarget = "dr"\n'
    assert "configured twice" in error_of(write(twice))


def test_the_cache_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRKIT_CACHE_DIR", str(tmp_path / "elsewhere"))
    assert cache_dir() == tmp_path / "elsewhere"


CLUSTERS = """
[clusters.primary]
bootstrap_servers = "127.0.0.1:1"
[clusters.dr]
bootstrap_servers = "127.0.0.1:2"
"""


def read(folder: Path, foreign_key: str):
    path = folder / "drkit.toml"
    path.write_text(f"{CLUSTERS}\n[[foreign_keys]]\n{foreign_key}\n")
    return load_config(path)


def test_a_foreign_key_names_two_topics_and_where_the_key_is(tmp_path: Path):
    config = read(tmp_path, 'child = "items"\nparent = "orders"\nkey = "$.order.id[0]"\ndecoder = "shop.avro:item"')

    (foreign_key,) = config.foreign_keys
    assert (foreign_key.child, foreign_key.parent, foreign_key.key) == ("items", "orders", "$.order.id[0]")
    assert (foreign_key.parent_key, foreign_key.decoder, foreign_key.parent_decoder) == ("key", "shop.avro:item", None)


@pytest.mark.parametrize(
    ("foreign_key", "says"),
    [
        ('child = "a"\nparent = "b"\nkey = "order_id"', "JSON path"),
        ('child = "a"\nparent = "a"\nkey = "$.x"', "between two topics"),
        ('child = "a"\nparent = "b"\nkey = "$.x"\ndecoder = "nothing"', "module:function"),
        ('child = "a"\nkey = "$.x"', "parent"),
    ],
)
def test_what_is_no_foreign_key_is_refused_by_name(tmp_path: Path, foreign_key: str, says: str):
    with pytest.raises(ConfigError, match=says) as refused:
        read(tmp_path, foreign_key)
    assert "foreign_keys.0" in str(refused.value)
