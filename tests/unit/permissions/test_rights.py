"""The rights of a configuration: patterns as names and prefixes, what includes what, and the documentation."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from drkit.cli.application import VERBS
from drkit.cli.views.acls_view import PrintedRights, kafka_acls_commands, kafka_acls_text, strimzi_user
from drkit.config import Config
from drkit.model.topics.name_patterns import Stretch, stretches
from drkit.permissions.resolve import EVERY_NAME, Principal, PrincipalOrigin, given_principal, principal_of, rights_of
from drkit.permissions.table import TABLE, Command, NeededWhen, Resource, Side, Subject, Who, needs_of
from tools.manual.permissions_page import permissions_page

ROOT = Path(__file__).parents[3]
FENCE = {"command": ["/bin/close"], "unfence": ["/bin/open"]}
CLUSTERS = {"primary": {"bootstrap_servers": "p:1"}, "dr": {"bootstrap_servers": "d:1"}}


def config(clusters=None, **link) -> Config:
    return Config.model_validate(
        {"clusters": clusters or CLUSTERS, "links": [{"source": "primary", "target": "dr", **link}]}
    )


def rights(read: Config, *commands: Command, cluster: str, **more) -> dict[tuple[str, str], set[str]]:
    """Operations by resource and name (a prefix with an ellipsis)."""
    found: dict[tuple[str, str], set[str]] = {}
    links = [each.link() for each in read.links]
    for each in rights_of(read, links, commands or tuple(Command), **more):
        for right in each.rights if each.cluster == cluster and each.who is Who.DRKIT else ():
            name = right.on.name + ("…" if right.on.prefixed else "")
            found.setdefault((right.on.resource.value, name), set()).add(right.operation.value)
    return found


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("flights", [Stretch("flights", prefixed=False, exact=True)]),
        ("orders[.].*", [Stretch("orders.", prefixed=True, exact=True)]),
        (r"orders\.eu", [Stretch("orders.eu", prefixed=False, exact=True)]),
        (".*", [Stretch("", prefixed=True, exact=True)]),
        (
            "flights|orders[.](eu|us)",
            [Stretch(name, prefixed=False, exact=True) for name in ("flights", "orders.eu", "orders.us")],
        ),
        ("(?:a|b)[.].*", [Stretch("a.", prefixed=True, exact=True), Stretch("b.", prefixed=True, exact=True)]),
        ("orders[.][0-9]+", [Stretch("orders.", prefixed=True, exact=False)]),
        ("orders.eu", [Stretch("orders", prefixed=True, exact=False)]),
        ("colou?r", [Stretch("colo", prefixed=True, exact=False)]),
        ("ab+c", [Stretch("ab", prefixed=True, exact=False)]),
        ("[ab|]x|y", [Stretch("", prefixed=True, exact=False), Stretch("y", prefixed=False, exact=True)]),
        ("(?i)flights|orders", [Stretch("", prefixed=True, exact=False)]),
        ("x(a|b)?", [Stretch("x", prefixed=True, exact=False)]),
    ],
)
def test_a_pattern_as_names_and_prefixes(pattern, expected):
    assert stretches(pattern) == expected


@pytest.mark.parametrize("pattern", ["flights|orders[.](eu|us)", "a(b|c)+d", "x{2}y", "(a|(b|c)d)e.*", r"a\.b|c.+"])
def test_the_stretches_hold_every_name_that_matches(pattern):
    names = [each for length in range(4) for each in _words("abcdexy.", length)]
    found = stretches(pattern)
    matching = [*(name for name in names if re.fullmatch(pattern, name)), "flights", "orders.eu"]
    for name in (each for each in matching if re.fullmatch(pattern, each)):
        assert any(name.startswith(each.name) if each.prefixed else name == each.name for each in found), name


def _words(letters, length):
    if length == 0:
        return [""]
    return [f"{first}{rest}" for first in letters for rest in _words(letters, length - 1)]


def test_the_names_of_a_link_on_both_sides():
    identity = config(topics=["flights", "orders[.].*"], groups=["billing"], rename={"flights": "flights-old"})
    source = rights(identity, Command.AUDIT, cluster="primary")
    assert set(source) == {("topic", "flights"), ("topic", "orders.…")}
    target = rights(identity, Command.AUDIT, cluster="dr")
    assert set(target) == {("topic", "flights-old"), ("topic", "orders.…"), ("cluster", "kafka-cluster")}
    prefix = config(topics=[".*"], policy="prefix")
    assert ("topic", "primary.…") in rights(prefix, Command.AUDIT, cluster="dr")
    assert ("topic", EVERY_NAME) in rights(prefix, Command.AUDIT, cluster="primary")


def test_what_is_wider_than_the_link_is_said():
    read = config(topics=["orders[.][0-9]+", "flights"], exclude_topics=["orders[.]7"])
    (found,) = [each for each in rights_of(read, [read.links[0].link()], [Command.AUDIT]) if each.cluster == "primary"]
    assert any("no name and no prefix" in note and "topic orders.…" in note for note in found.notes)
    assert any("what is excluded" in note for note in found.notes)
    exact = config(topics=["flights"], groups=["billing"])
    assert all(not each.notes for each in rights_of(exact, [exact.links[0].link()], [Command.AUDIT, Command.MIRROR]))


def test_a_right_that_another_one_includes_is_left_out():
    read = config(topics=["flights"], groups=["billing"])
    both = rights(read, Command.RUNS, Command.AUDIT, cluster="primary")
    assert both["topic", "flights"] == {"read", "describe_configs"}
    assert rights(read, Command.RUNS, cluster="primary")["topic", "flights"] == {"describe"}
    found = rights_of(read, [read.links[0].link()], [Command.RUNS, Command.AUDIT])
    reads = [
        right for each in found for right in each.rights if (right.operation, right.on.name) == ("read", "flights")
    ]
    assert reads
    assert all({Command.RUNS, Command.AUDIT} <= set(right.commands) for right in reads), "it serves both"
    everything = rights(config(), Command.MIRROR, cluster="dr")
    assert ("topic", "__drkit_state.primary.dr.…") not in everything, "all topics are more"


def test_an_optional_right_stands_in_for_none_that_is_needed():
    read = config(topics=["flights"], groups=["billing"])
    found = rights(read, Command.MIRROR, Command.FAILOVER, cluster="primary")
    assert found["topic", "__consumer_offsets"] == {"read", "describe"}
    assert rights(read, Command.MIRROR, cluster="primary")["topic", "__consumer_offsets"] == {"read"}


def test_what_a_link_does_not_do_needs_no_right():
    read = config(topics=["flights"], groups=["billing"], offsets="translate")
    assert "delete" not in rights(read, Command.MIRROR, cluster="dr")["topic", "flights"]
    looks = {"describe", "describe_configs"}
    assert rights(read, Command.MIRROR, cluster="dr")["cluster", "kafka-cluster"] == looks
    deleting = config(topics=["flights"], groups=["billing"], offsets="translate", deletions="mirror", acls="standby")
    assert "delete" in rights(deleting, Command.MIRROR, cluster="dr")["topic", "flights"]
    assert rights(deleting, Command.MIRROR, cluster="dr")["cluster", "kafka-cluster"] - looks == {"alter"}
    canary = config(topics=["flights"], groups=["billing"], canary=True)
    assert "write" in rights(canary, Command.MIRROR, cluster="primary")["topic", "drkit.canary.primary.dr"]


COMMANDED = {**CLUSTERS, **{alias: {**each, "fence": FENCE} for alias, each in CLUSTERS.items()}}
CONDITIONS = {
    NeededWhen.ACLS: (config(acls="standby"), config(acls="off")),
    NeededWhen.PRESERVE: (config(offsets="preserve"), config(offsets="translate")),
    NeededWhen.DELETIONS: (config(deletions="mirror"), config(deletions="keep")),
    NeededWhen.CANARY: (config(canary=True), config(canary=False)),
    NeededWhen.FENCED_BY_RULES: (config(), config(COMMANDED)),
    NeededWhen.FENCED_BY_COMMAND: (config(COMMANDED), config()),
}
"""Of each condition: a configuration where it holds, and one where it doesn't."""


@pytest.mark.parametrize(("when", "configured"), CONDITIONS.items())
def test_a_conditional_right_is_printed_exactly_where_its_condition_holds(when, configured):
    def reasons(read: Config) -> set[tuple[Command, str]]:
        found = rights_of(read, [each.link() for each in read.links], tuple(Command))
        return {
            (why.command, why.purpose)
            for each in found
            for right in each.rights
            for why in right.reasons
            if why.operation in operations[why.purpose]
        }

    rows = [each for each in TABLE if each.when is when]
    always = {(command, each.purpose) for each in TABLE if each.when is not when for command in each.commands}
    operations = {each.purpose: each.operations for each in TABLE}
    expected = {(command, each.purpose) for each in rows for command in each.commands} - always
    assert expected
    holds, holds_not = configured
    assert expected <= reasons(holds)
    assert not expected & reasons(holds_not)


def test_every_condition_is_tried():
    assert {*CONDITIONS, NeededWhen.REPLAY} == set(NeededWhen)


def test_a_replay_needs_its_topic_and_its_transactional_id_only_where_there_is_one():
    read = config(topics=["flights"], groups=["billing"])
    wanted = {
        ("topic", "again"): {"read", "write", "describe_configs"},
        ("transactional_id", "drkit-replay-again"): {"write"},
    }
    without = rights(read, Command.SALVAGE, cluster="dr")
    assert rights(read, Command.SALVAGE, cluster="dr", replay_to="again") == {**without, **wanted}
    assert not any("replay" in name or kind == "transactional_id" for kind, name in without)


def test_the_way_back_carries_no_deletions():
    """So it needs no look at the controllers of the cluster that serves."""
    read = config(topics=["flights"], groups=["billing"], deletions="mirror")
    (found,) = [each for each in rights_of(read, [read.links[0].link()], [Command.FAILBACK]) if each.cluster == "dr"]
    purposes = {why.purpose for right in found.rights for why in right.reasons}
    assert not any("before a deletion is believed" in each for each in purposes)


def test_what_a_loss_is_told_by_is_optional_for_who_fails_over():
    read = config(topics=["flights"], groups=["billing"])
    for command in (Command.STATUS, Command.FAILOVER, Command.REHEARSE):
        for alias in ("primary", "dr"):
            found = rights_of(read, [read.links[0].link()], [command])
            (right,) = [
                right
                for each in found
                for right in each.rights
                if (each.cluster, right.on.name, right.operation.value)
                in {(alias, "flights", "describe_configs"), (alias, "flights", "alter_configs")}
            ]
            assert right.optional
            assert any("tell what retention" in why.purpose for why in right.reasons)


def test_a_failback_needs_what_the_mirror_of_the_way_back_needs():
    read = config(topics=["flights"], groups=["billing"])
    old = rights(read, Command.FAILBACK, cluster="primary")
    assert {"create", "write", "read", "alter", "alter_configs", "delete"} <= old["topic", "flights"]
    assert old["group", "drkit.mirror.dr-primary"] == {"read"}
    assert old["group", "billing"] == {"read", "delete"}
    assert old["group", "*"] == {"describe"}
    assert "read" not in rights(read, Command.REPROTECT, cluster="primary")["group", "billing"]
    assert not any(each.need.subject is Subject.STATE and each.turned for each in needs_of(Command.FAILBACK))


def test_the_page_needs_what_the_plan_of_a_failover_looks_at_and_changes_nothing():
    read = config(topics=["flights"], groups=["billing"])
    source, target = (rights(read, Command.SERVE, cluster=alias) for alias in ("primary", "dr"))
    assert source["group", "billing"] == {"describe"}
    assert source["topic", "__consumer_offsets"] == target["topic", "__consumer_offsets"] == {"describe"}
    assert (target["topic", "flights"], target["group", "billing"]) == ({"read", "describe_configs"}, {"read"})
    assert source["cluster", "kafka-cluster"] == {"alter"}, "whether it may be fenced"
    changing = {"create", "write", "delete", "alter_configs"}
    assert not any(changing & operations for found in (source, target) for operations in found.values())


def test_a_fence_by_command_needs_a_writer_and_no_rules():
    read = config({**CLUSTERS, "primary": {"bootstrap_servers": "p:1", "fence": FENCE}}, topics=["flights"])
    found = rights(read, Command.FAILOVER, cluster="primary")
    assert ("cluster", "kafka-cluster") not in found
    assert "write" in found["topic", "flights"], "it is shown to drkit itself"
    writer = {**FENCE, "client": {"security.protocol": "PLAINTEXT"}}
    read = config({**CLUSTERS, "primary": {"bootstrap_servers": "p:1", "fence": writer}}, topics=["flights"])
    assert "write" not in rights(read, Command.FAILOVER, cluster="primary")["topic", "flights"]
    assert Who.WRITER in {each.who for each in rights_of(read, [read.links[0].link()], [Command.FAILOVER])}


def test_every_command_is_in_the_table_and_every_row_says_what_it_costs():
    assert all(any(True for _ in needs_of(command)) for command in Command)
    for need in TABLE:
        assert need.commands, need
        assert need.operations, need
        assert need.purpose, need
        assert need.without, need
        assert need.side in set(Side)
    named = {command.value.split()[0] for command in Command} - {"rehearse"}
    assert named <= set(VERBS)


def test_the_document_is_current():
    assert (ROOT / "docs" / "permissions.md").read_text(encoding="utf-8") == permissions_page()


# -- as they are printed ---------------------------------------------------------------------------


def printed(principal: Principal) -> PrintedRights:
    read = config(topics=["flights", "orders[.].*"], groups=["billing"])
    found = rights_of(read, [read.links[0].link()], [Command.FAILBACK])
    (each,) = [each for each in found if each.cluster == "primary"]
    return PrintedRights("primary", "p:1,p:2", principal, each.rights, each.notes)


def test_as_commands_of_kafkas_tool():
    commands = kafka_acls_commands(printed(given_principal("drkit")))
    begin = "kafka-acls.sh --bootstrap-server p:1,p:2 --command-config admin-primary.properties --add "
    assert all(each.startswith(f"{begin}--allow-principal User:drkit ") for each in commands)
    assert any(each.endswith("--topic orders. --resource-pattern-type prefixed") for each in commands)
    assert any(each.endswith("--operation Alter --operation DescribeConfigs --cluster") for each in commands)
    assert any("--group '*' --resource-pattern-type literal" in each for each in commands)
    text = kafka_acls_text([printed(given_principal("drkit"))])
    assert "# cluster primary, principal User:drkit\n" in text


def test_each_cluster_has_a_file_of_its_own_for_who_may_alter_its_rules():
    primary = printed(given_principal("drkit"))
    text = kafka_acls_text([primary, replace(primary, cluster="dr", bootstrap_servers="d:1")])
    for alias, servers in (("primary", "p:1,p:2"), ("dr", "d:1")):
        assert f"# admin-{alias}.properties: client properties" in text
        assert f"--bootstrap-server {servers} --command-config admin-{alias}.properties \\\n" in text


def test_as_a_kafka_user():
    text = strimzi_user(printed(given_principal("User:drkit")))
    assert text is not None
    user = yaml.safe_load(text)
    assert (user["kind"], user["metadata"]["name"]) == ("KafkaUser", "drkit")
    listed = user["spec"]["authorization"]["acls"]
    rules = {(each["resource"]["type"], each["resource"].get("name")): each for each in listed}
    assert rules["topic", "orders."]["resource"]["patternType"] == "prefix"
    assert "AlterConfigs" in rules["topic", "flights"]["operations"]
    assert rules["cluster", None]["operations"] == ["Alter", "DescribeConfigs"]
    certified = yaml.safe_load(strimzi_user(printed(given_principal("User:CN=drkit"))) or "")
    assert certified["spec"]["authentication"] == {"type": "tls-external"}
    assert strimzi_user(printed(given_principal("User:CN=drkit,O=shop"))) is None


def test_the_principal_of_client_settings():
    def cluster(**client):
        named = {name.replace("_", "."): value for name, value in client.items()}
        return Config.model_validate({"clusters": {"c": {"bootstrap_servers": "c:1", "client": named}}}).clusters["c"]

    sasl = {"security_protocol": "SASL_SSL", "sasl_mechanisms": "SCRAM-SHA-512", "sasl_password": {"env": "NOT_SET"}}
    assert principal_of(cluster(**sasl, sasl_username="ops")).name == "User:ops"
    assert principal_of(cluster()).name == "User:ANONYMOUS"
    for unknown in (cluster(security_protocol="SSL"), cluster(**sasl, sasl_username={"env": "NOT_SET"})):
        found = principal_of(unknown)
        assert (found.name, found.origin) == ("User:drkit", PrincipalOrigin.PLACEHOLDER)
        assert "placeholder" in found.note
    assert given_principal("Group:ops").name == "Group:ops"


def test_resources_are_of_kafkas_types():
    assert {need.subject.resource for need in TABLE} == set(Resource)
