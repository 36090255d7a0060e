"""An experiment file is typed; every error names the file and the line to correct."""

import re
from pathlib import Path

import pytest

from drkit.drill.experiment.faults import Kill
from drkit.drill.experiment.reader import load_experiment
from drkit.drill.experiment.steps import Failover
from drkit.model.errors import ConfigError, ExitCode

GOOD = """\
title: A title
hypothesis: It holds
steady_state:
  conditions:
    - condition: acknowledged
      cluster: primary
      at_least: 10
method:
  - do: workload
    topic: t
  - do: mirror
  - do: kill
    node: primary-1
  - do: failover
    at: "04:03"
  - do: move_clients
    to: dr
checks: [lost, skipped_by_group]
objectives:
  rpo_records: 5
  rto_seconds: 30
rollbacks:
  - do: restart
    node: primary
"""


STRIKES = """do: failover
    strikes:
      - at: %s
        faults: [{ do: %s, node: %s }]"""
"""From line 14 on."""
KILL = "  - do: kill\n    node: primary-1"
BRANCHES = """\
  - do: parallel
    branches:
      - - %s
      - - %s"""
"""From line 12 on, in place of KILL: the first branch is on line 14, the second on line 15."""


def branches(first, second):
    return BRANCHES % (first, second)


def in_branches(first, second):
    """GOOD with these branches; a failover in one of them is the only one."""
    text = GOOD.replace(KILL, branches(first, second))
    return text.replace('  - do: failover\n    at: "04:03"\n', "") if "failover" in first + second else text


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return file


def test_the_certificate_of_one_of_several_brokers_can_not_expire(tmp_path):
    lab = "lab: { secured: true, tls: true, brokers: %d }\nsteady_state:"
    text = GOOD.replace(KILL, "  - { do: expire_certificate, cluster: primary }")
    assert load_experiment(write(tmp_path, text.replace("steady_state:", lab % 1))).experiment.lab.tls
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(tmp_path, text.replace("steady_state:", lab % 2)))
    assert "x.yaml:13: method.2: expire_certificate strikes" in caught.value.what


def test_a_good_file_is_read(tmp_path):
    found = load_experiment(write(tmp_path, GOOD))
    experiment = found.experiment
    assert experiment.workload("primary->dr").topic == "t"
    assert experiment.disturbance == 2
    assert isinstance(experiment.method[2], Kill)
    assert isinstance(experiment.method[3], Failover)
    assert experiment.method[3].at == "04:03"
    assert [found.line("method", n) for n in range(5)] == [9, 11, 12, 14, 16]
    assert found.line("rollbacks", 0) == 23


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("title: A title", "titel: A title", 1, "titel: unknown key"),
        ("title: A title\n", "", 1, "title: is missing"),
        ("at_least: 10", "at_least: ten", 7, "steady_state.conditions.0.at_least: Input should be a valid integer"),
        ("at_least: 10", "at_least: 0", 7, "greater than or equal to 1"),
        ("      at_least: 10\n", "", 5, "steady_state.conditions.0.at_least: is missing"),
        ("condition: acknowledged", "condition: acked", 5, "'acked' is unknown; known are acknowledged, consumed"),
        ("    - condition: acknowledged\n      cluster", "    - cluster", 5, "conditions.0.condition: is missing"),
        ("    topic: t", "    topic: t\n    speed: 3", 11, "method.0.speed: unknown key"),
        ("    topic: t", "    topic: a b", 10, "method.0.topic: String should match pattern"),
        ("    node: primary-1", "    node: primery", 13, "method.2.node: 'primery' is not a node"),
        ("    node: primary-1", "    node: cassandra", 13, "set lab.store to cassandra"),
        ("    node: primary-1", "    node: primary-1\n    nod: x", 14, "method.2.nod: unknown key"),
        ("do: kill", "do: kil", 12, "method.2.do: 'kil' is unknown; known are workload"),
        ('at: "04:03"', "at: 403", 15, "method.3.at: Input should be a valid string"),
        ("to: dr", "to: paris", 17, "method.4.to: paris is not a cluster of this experiment; known: primary, dr"),
        ("[lost, skipped_by_group]", "[lost, losst]", 18, "checks.1: Input should be"),
        ("[lost, skipped_by_group]", "[lost, lost]", 18, "checks.1: lost is there twice"),
        ("  rpo_records: 5\n", "", 18, "checks.0: lost needs an RPO"),
        ("[lost,", "[torn_transaction, lost,", 18, "checks.0: torn_transaction needs transactions in the workload"),
        ("[lost,", "[stable_offset_stuck, lost,", 18, "checks.0: stable_offset_stuck needs transactions in the"),
        (
            "  - do: move_clients\n    to: dr\nchecks: [lost, skipped_by_group]",
            "checks: [lost, reread_beyond_plan]",
            16,
            "checks.1: reread_beyond_plan needs a failover step and a move_clients step",
        ),
        ("    topic: t", "    transactions: { records: 0 }", 10, "method.0.transactions.records: Input should be"),
        ("    topic: t", "    transactions: { abort: 3 }", 10, "method.0.transactions.abort: unknown key"),
        ("rto_seconds: 30", "rto_seconds: -1", 21, "objectives.rto_seconds"),
        ("rto_seconds: 30", "rto_seconds: soon", 21, "objectives.rto_seconds"),
        (
            "  - do: mirror\n  - do: kill\n    node: primary-1",
            "  - do: kill\n    node: mirror",
            12,
            "not started before",
        ),
        ("  - do: mirror", "  - do: mirror\n  - do: mirror", 12, "a second mirror"),
        ("  - do: mirror", "  - do: workload", 11, "a second workload"),
        ("  - do: workload\n    topic: t\n", "", 8, "no workload step"),
        ("  - do: move_clients\n    to: dr\n", "", 16, "skipped_by_group needs a move_clients step"),
        ('  - do: failover\n    at: "04:03"\n', "", 19, "an RTO needs a failover step"),
        ("    node: primary-1", "    node: run", 13, "run is the process of a failover or failback"),
        ('do: failover\n    at: "04:03"', "do: failback", 14, "a failback needs a failover before it"),
        ("do: failover", "do: failover\n    strikes: [{ at: comit, faults: [] }]", 15, "strikes.0.at: Input should be"),
        ("do: failover", STRIKES % ("commit", "pause", "run"), 17, "run is the process of a failover or failback"),
        ("do: failover", STRIKES % ("commit", "kill", "run"), 14, "its run is killed; set resumes to at least 1"),
        ("do: failover", STRIKES % ("commit", "kill", "cassandra"), 17, "set lab.store to cassandra"),
        (
            "do: failover",
            STRIKES % ("fence", "kill", "dr") + "\n      - { at: fence, faults: [{ do: kill, node: dr }] }",
            18,
            "fence is there twice",
        ),
        ("    node: primary-1", "    node: primary-1\n  - do: delete_topic", 14, "method.3.cluster: is missing"),
        (
            "    node: primary-1",
            "    node: primary-1\n  - { do: purge_topic, cluster: dr, part: 0.0 }",
            14,
            "method.3.part: Input should be greater than 0",
        ),
        (
            "    node: primary-1",
            "    node: primary-1\n  - { do: corrupt_batch, cluster: primary, partition: 4 }",
            14,
            "method.3.partition: the workload has 4 partitions",
        ),
        ("    node: primary-1", "    node: primary-1\n  - do: reset_network", 14, "set lab.wan to true"),
        (
            "    node: primary-1",
            "    node: primary-1\n  - { do: expire_credentials, cluster: dr }",
            14,
            "set lab.secured to true",
        ),
        (
            "    node: primary-1",
            "    node: primary-1\n  - { do: expire_certificate, cluster: dr }",
            14,
            "set lab.tls to true",
        ),
        ("hypothesis: It holds", "hypothesis: It holds\nlab: { tls: true }", 3, "lab.tls: only applications that"),
        ("    topic: t", "    topic: t\n    late: { every: 1 }", 11, "method.0.late.every: Input should be greater"),
        ("    node: primary-1", "    node: primary-1\n  - do: reprotect", 14, "a reprotect needs a failover before it"),
        (
            "    node: primary-1",
            "    node: primary-1\n  - { do: degrade_network, loss: 1.5 }",
            14,
            "loss: Input should be",
        ),
        ("  - do: workload", "  - { do: flood, cluster: dr }\n  - do: workload", 9, "its topic doesn't exist"),
        ("  - do: mirror", "  - do: disconnect\n  - do: mirror", 11, "the mirror is not started before this step"),
        ("hypothesis: It holds", "hypothesis: It holds\nsafety: { never: true }", 3, "safety.never: unknown key"),
        (
            "hypothesis: It holds",
            "hypothesis: It holds\nsafety: { healthy_brokers: { mars: 1 } }",
            3,
            "healthy_brokers",
        ),
        (KILL, "  - do: parallel", 12, "method.2.branches: is missing"),
        (KILL, "  - { do: parallel, branches: [[{ do: disconnect }]] }", 12, "branches: List should have at least 2"),
        (KILL, branches("{ do: mirror }", "{ do: disconnect }"), 14, "branches.0.0.do: 'mirror' is unknown"),
        (KILL, branches("{ do: parallel }", "{ do: disconnect }"), 14, "branches.0.0.do: 'parallel' is unknown"),
        (KILL, branches("{ do: hold, seconds: 1 }", "{ do: kill, nod: dr }"), 15, "branches.1.0.nod: unknown key"),
        (KILL, branches("{ do: failover }", "{ do: failback }"), 15, "another branch acts on the run of a failover"),
        (KILL, branches("{ do: failover }", "{ do: move_clients, to: dr }"), 15, "acts on the run of a failover"),
        (KILL, branches("{ do: kill, node: dr }", "{ do: restart, node: dr-1 }"), 15, "another branch acts on dr"),
        (KILL, branches("{ do: stop_clients }", "{ do: skew_clock, cluster: primary }"), 15, "acts on the clients"),
        (
            KILL,
            branches("{ do: lose_tail, cluster: dr }", "{ do: kill, node: dr-1 }"),
            15,
            "another branch acts on dr-1, too: the order would be chance; use one branch",
        ),
        ("title: A title", "title: A title\ntitle: Another", 2, "the key 'title' is there twice"),
        ("title: A title", "title: [", 3, "not valid YAML"),
        ("title: A title", "title: !!python/object:os.system x", 1, "not a value that can be read"),
        ("hypothesis: It holds", "hypothesis: It holds\nlab: {brokers: 0}", 3, "lab.brokers"),
        ("hypothesis: It holds", "hypothesis: It holds\nlab: {store: mysql}", 3, "lab.store"),
    ],
)
def test_an_error_names_its_line(tmp_path, before, after, line, said):
    assert before in GOOD
    file = write(tmp_path, GOOD.replace(before, after, 1))
    with pytest.raises(ConfigError) as caught:
        load_experiment(file)
    assert any(each.startswith(f"{file}:{line}:") and said in each for each in caught.value.what.splitlines()), str(
        caught.value
    )
    assert caught.value.exit_code is ExitCode.USAGE


SEVERAL = """\
title: A title
hypothesis: It holds
lab:
  links:
    - { source: east, target: hub, policy: prefix }
    - { source: west, target: hub, policy: prefix }
steady_state:
  conditions:
    - { condition: mirrored, link: east->hub, at_most_behind: 10 }
method:
  - { do: workload, link: east->hub, topic: t, group: a }
  - { do: workload, link: west->hub, topic: t, group: b }
  - { do: mirror }
  - { do: kill, node: east }
  - { do: failover, to: hub, links: [east->hub] }
  - { do: move_clients, link: east->hub, to: hub }
checks: [lost, skipped_by_group, both_sides_written]
objectives: { rpo_records: 5 }
"""


WITH_BOOK = "do: failover\n    runbook: { book: %s, blocks: [%s] }"


@pytest.mark.parametrize(
    ("book", "blocks", "line", "said"),
    [
        ("unplanned-failover", "look, go", 0, ""),
        ("unplanned-failover", "look, gone", 15, "blocks.1: unplanned-failover.md has no block 'gone'; known: audit,"),
        ("failover", "look", 15, "runbook.book: no runbook failover is installed; known: unplanned-failover"),
        ("unplanned-failover", "", 15, "blocks: List should have at least 1 item"),
        ("../x", "look", 15, "runbook.book: String should match pattern"),
    ],
)
def test_a_runbook_in_place_of_the_command(tmp_path, book, blocks, line, said):
    text = GOOD.replace('do: failover\n    at: "04:03"', WITH_BOOK % (book, blocks))
    if not said:
        step = load_experiment(write(tmp_path, text)).experiment.method[3]
        assert (step.runbook.book, step.runbook.blocks) == (book, ["look", "go"])
        return
    with pytest.raises(ConfigError, match=rf"x\.yaml:{line}: .*{re.escape(said)}"):
        load_experiment(write(tmp_path, text))


def test_a_runbook_says_itself_what_the_step_would(tmp_path):
    text = GOOD.replace("do: failover\n", f"{WITH_BOOK % ('unplanned-failover', 'go')}\n    resumes: 2\n")
    with pytest.raises(ConfigError) as caught:
        load_experiment(write(tmp_path, text))
    for key, line in (("at", 17), ("resumes", 16)):
        assert f"x.yaml:{line}: method.3.{key}: the runbook's own commands say it" in str(caught.value)


FAILOVER = "  - { do: failover, to: hub, links: [east->hub] }\n"


def test_a_failover_moves_all_links_that_lead_to_its_cluster(tmp_path):
    text = SEVERAL.replace(", links: [east->hub] }", " }\n  - { do: failback, to: west }\n  - { do: reprotect }")
    experiment = load_experiment(write(tmp_path, text)).experiment
    failover, failback, reprotect = experiment.method[4:7]
    names = [link.name for link in experiment.links]
    assert [link.name for link in experiment.moved_by(failover)] == names
    assert [link.name for link in experiment.returned_by(failback, names)] == ["west->hub"]
    assert [link.name for link in experiment.returned_by(reprotect, ["east->hub"])] == ["east->hub"]
    assert experiment.returned_by(failback, ["east->hub"]) == []


def test_an_experiment_has_several_links(tmp_path):
    experiment = load_experiment(write(tmp_path, SEVERAL)).experiment
    assert experiment.lab.clusters == ("east", "hub", "west")
    assert [experiment.workload(link.name).group for link in experiment.links] == ["a", "b"]
    assert [link.topic_on("hub", "t") for link in experiment.links] == ["east.t", "west.t"]
    assert [link.name for link in experiment.moved_by(experiment.method[4])] == ["east->hub"]
    assert experiment.moving == ["east->hub"]
    assert experiment.checks_of("east->hub") == ["lost", "skipped_by_group", "both_sides_written"]
    assert experiment.checks_of("west->hub") == ["lost"], "its clients stay"
    assert (experiment.linked_with("hub"), experiment.linked_with("west")) == (["east", "west"], ["hub"])


@pytest.mark.parametrize(
    ("before", "after", "line", "said"),
    [
        ("link: east->hub, at_most", "at_most", 9, "primary->dr is not a link of this experiment; known: east->hub"),
        ("link: west->hub, topic", "link: west->east, topic", 12, "west->east is not a link of this experiment"),
        ("{ do: kill, node: east }", "{ do: kill, node: primary }", 14, "'primary' is not a node that it can strike"),
        ("{ do: kill, node: east }", "{ do: kill, node: run-1 }", 14, "'run-1' is not a node that it can strike"),
        (
            "{ do: kill, node: east }",
            "{ do: delete_topic, link: east->hub, cluster: west }",
            14,
            "method.3.cluster: west is at neither end of east->hub",
        ),
        ("to: hub, links: [east->hub] }", "to: hub }", 15, ""),
        ("to: hub, links: [east->hub] }", "to: west }", 15, "no link leads to west"),
        ("links: [east->hub]", "links: [north->hub]", 15, "links.0: north->hub is not a link of this experiment"),
        ("links: [east->hub]", "links: [east->hub], groups: [b]", 15, "the group of east->hub is not among them"),
        (FAILOVER, f"{FAILOVER}  - {{ do: failover, to: hub }}\n", 16, "a failover before it moved east->hub"),
        (FAILOVER, f"{FAILOVER}  - {{ do: failback }}\n  - {{ do: failover, to: hub }}\n", 16, ""),
        (
            FAILOVER,
            f"{FAILOVER}  - {{ do: failback, links: [west->hub] }}\n",
            16,
            "no failover before it moves west->hub",
        ),
        (FAILOVER, f"{FAILOVER}  - {{ do: failback, to: west }}\n", 16, "the groups come from east"),
        (FAILOVER, f"{FAILOVER}  - {{ do: reprotect, links: [west->hub] }}\n", 16, "no failover before it moves west"),
        (FAILOVER, f"{FAILOVER}  - {{ do: failback }}\n  - {{ do: reprotect }}\n", 17, "a reprotect needs a failover"),
        (
            "to: hub, links: [east->hub] }",
            "to: dr }",
            15,
            "dr is not a cluster of this experiment; known: east, hub, west",
        ),
        ("topic: t, group: b", "topic: t, group: a", 12, "the group of east->hub has the same name"),
        ("source: west, target: hub, policy: prefix", "source: west, target: hub", 6, ""),
        ("link: west->hub, topic: t", "link: west->hub, topic: u", 12, ""),
        ("  - { do: workload, link: west->hub, topic: t, group: b }\n", "", 4, "west->hub has no workload"),
        ("source: west", "source: east", 6, "east->hub is there twice"),
        ("source: west, target: hub", "source: west, target: west", 6, "leads from a cluster to itself"),
        ("source: west", "source: mirror", 6, "mirror can't be the alias of a cluster"),
        ("source: west", "source: my-west", 6, "lab.links.1.source: String should match pattern"),
        ("lab:\n", "lab:\n  wan: true\n", 4, "the one to primary, and no link has this cluster"),
    ],
)
def test_an_error_in_an_experiment_of_several_links_names_its_line(tmp_path, before, after, line, said):
    assert before in SEVERAL
    file = write(tmp_path, SEVERAL.replace(before, after, 1))
    if not said:
        load_experiment(file)
        return
    with pytest.raises(ConfigError) as caught:
        load_experiment(file)
    assert any(each.startswith(f"{file}:{line}:") and said in each for each in caught.value.what.splitlines()), str(
        caught.value
    )


def test_two_links_may_not_write_one_topic(tmp_path):
    """Neither may two workloads of one cluster."""
    with pytest.raises(ConfigError, match=r"x\.yaml:12: method\.1\.topic: east->hub has the topic t on hub, too"):
        load_experiment(write(tmp_path, SEVERAL.replace(", policy: prefix", "")))


@pytest.mark.parametrize("at", ["14:03", "04:03:20", "2026-11-20T04:03:00Z", "2026-11-20", "-2m"])
def test_a_time_is_the_text_that_was_written(tmp_path, at):
    experiment = load_experiment(write(tmp_path, GOOD.replace('at: "04:03"', f"at: {at}"))).experiment
    assert experiment.method[3].at == at


def test_all_errors_are_told_at_once(tmp_path):
    file = write(tmp_path, GOOD.replace("do: kill", "do: kil").replace("to: dr", "to: the dr"))
    with pytest.raises(ConfigError) as caught:
        load_experiment(file)
    assert len(caught.value.what.splitlines()) == 2


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "a: &x [*x]\n"])
def test_what_is_no_experiment_is_refused(tmp_path, text):
    with pytest.raises(ConfigError):
        load_experiment(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no experiment at"):
        load_experiment(tmp_path / "none.yaml")


def test_an_anchor_may_be_used_again(tmp_path):
    text = GOOD.replace("    node: primary-1", "    node: &n primary").replace("    node: primary\n", "    node: *n\n")
    experiment = load_experiment(write(tmp_path, text)).experiment
    assert experiment.rollbacks[0].do == "restart"


@pytest.mark.parametrize("fault", ["lose_tail", "corrupt_batch", "recreate_topic"])
def test_a_fault_of_the_only_replica_needs_a_lab_of_one_broker(tmp_path, fault):
    text = GOOD.replace("do: kill\n    node: primary-1", f"do: {fault}\n    cluster: primary")
    assert load_experiment(write(tmp_path, text)).experiment.disturbance == 2
    several = text.replace("hypothesis: It holds", "hypothesis: It holds\nlab: { brokers: 3 }")
    with pytest.raises(ConfigError, match=r"set lab\.brokers to 1"):
        load_experiment(write(tmp_path, several))


@pytest.mark.parametrize("fault", ["delete_topic", "add_partitions", "write_foreign", "disconnect"])
def test_every_fault_may_strike_at_a_stage(tmp_path, fault):
    where = "" if fault == "disconnect" else ", cluster: dr"
    strikes = f"do: failover\n    strikes: [{{ at: commit, faults: [{{ do: {fault}{where} }}] }}]"
    experiment = load_experiment(write(tmp_path, GOOD.replace("do: failover", strikes))).experiment
    assert experiment.method[3].strikes[0].faults[0].do == fault


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("{ do: kill, node: primary-1 }", "{ do: kill, node: primary-2 }"),
        ("{ do: kill, node: primary }", "{ do: kill, node: mirror }"),
        ("{ do: failover }", "{ do: stop_clients }"),
        ("{ do: purge_topic, cluster: primary }", "{ do: delete_topic, cluster: dr }"),
        (
            "{ do: failover, resumes: 1, strikes: [{ at: commit, faults: [{ do: kill, node: run }] }] }",
            "{ do: disconnect }",
        ),
    ],
)
def test_branches_may_act_on_different_things(tmp_path, first, second):
    experiment = load_experiment(write(tmp_path, in_branches(first, second))).experiment
    assert [branch[0].do for branch in experiment.method[2].branches] == [
        first.split()[2].rstrip(","),
        second.split()[2].rstrip(","),
    ]


@pytest.mark.parametrize(
    ("first", "second", "refused"),
    [
        ("{ do: kill, node: primary }", "{ do: pause, node: dr }", True),
        (
            "{ do: kill, node: primary }",
            "{ do: failover, strikes: [{ at: commit, faults: [{ do: kill, node: dr }] }] }",
            True,
        ),
        ("{ do: kill, node: primary-1 }", "{ do: kill, node: primary-2 }", False),
        ("{ do: kill, node: primary }", "{ do: kill, node: mirror }", False),
    ],
)
def test_branches_never_strike_both_sides_where_safety_forbids_it(tmp_path, first, second, refused):
    """Each of them, asked just before, would find the other side well."""
    text = in_branches(first, second)
    load_experiment(write(tmp_path, text))
    file = write(
        tmp_path, text.replace("hypothesis: It holds", "hypothesis: It holds\nsafety: { never_both_sides: true }")
    )
    if refused:
        with pytest.raises(ConfigError, match=r"x\.yaml:16: method.2.branches.1.0: another branch strikes primary"):
            load_experiment(file)
    else:
        load_experiment(file)


@pytest.mark.parametrize(
    ("check", "refused"), [("aborted_read", True), ("dirty_commit", True), ("torn_transaction", False)]
)
def test_a_check_of_aborted_transactions_needs_some(tmp_path, check, refused):
    text = GOOD.replace("[lost,", f"[{check}, lost,").replace(
        "    topic: t", "    topic: t\n    transactions: { abort_every: %d }"
    )
    assert load_experiment(write(tmp_path, text % 3)).experiment.workload("primary->dr").transactions.records == 20
    if not refused:
        load_experiment(write(tmp_path, text % 0))
        return
    with pytest.raises(ConfigError, match=rf"{check} needs transactions\.abort_every above 0 in the workload"):
        load_experiment(write(tmp_path, text % 0))
