"""The export for Chaos Toolkit: the commands of the steps that have one, and every other part listed with its line.

`chaos validate` of chaostoolkit-lib 1.44 accepts every export of the library; the package is no dependency.
"""

import json
import re
from pathlib import Path

import jsonschema
import pytest

from drkit.drill.chaos_toolkit import export_experiment
from drkit.drill.experiment.reader import library_files, load_experiment
from drkit.drill.experiment.steps import describe
from drkit.model.errors import Refused
from tests.support.commands.in_process import in_process
from tools.drill_schemas import schemas

TEXT = """\
title: t
hypothesis: It holds
lab: { brokers: 2, wan: true }
steady_state:
  conditions:
    - { condition: answers, cluster: primary }
    - { condition: silent, cluster: dr }
    - { condition: problem_told, kind: retention_gap }
    - { condition: mirrored, at_most_behind: 5 }
    - { condition: positions_captured }
    - { condition: acknowledged, cluster: primary, at_least: 1 }
safety: { time_limit_seconds: 60 }
method:
  - do: workload
  - do: mirror
  - { do: load, dataset: flights, limit: 10, rate: 2.5 }
  - { do: hold, seconds: 3 }
  - { do: kill, node: primary-1 }
  - { do: wait, until: { condition: silent, cluster: primary } }
  - { do: reset_network }
  - do: failover
    at: "-2m"
    groups: [drill-billing]
    accept_unfenced: true
    resumes: 1
    strikes: [{ at: commit, faults: [{ do: kill, node: run }] }]
  - do: parallel
    branches:
      - - { do: hold, seconds: 2 }
        - { do: pause, node: dr-1 }
        - { do: resume, node: dr-1 }
      - - { do: kill, node: dr-2 }
        - { do: restart, node: mirror }
        - { do: restart, node: dr-2 }
      - - { do: stop_clients }
  - { do: failback, accept_unfenced: true }
  - { do: hold, seconds: 1 }
checks: [duplicated]
objectives: { rpo_records: 5 }
rollbacks:
  - { do: restart, node: primary }
  - { do: heal_network }
"""


def exported(tmp_path, text=TEXT):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    return export_experiment(load_experiment(file), Path("/lab"))


def words(activity):
    assert activity["provider"]["path"] == "drkit"
    assert activity["provider"]["arguments"][-2:] == ["--output", "json"]
    return " ".join(activity["provider"]["arguments"][:-2])


def test_steps_with_a_command_are_activities_in_their_order(tmp_path):
    document = exported(tmp_path).chaos_toolkit
    config, old_primary = "--config ${lab_dir}/drkit.toml", "--cluster-id primary=${primary_cluster_id}"
    assert [(each["type"], words(each)) for each in document["method"]] == [
        ("action", "lab load flights --dir ${lab_dir} --rate 2.5 --limit 10"),
        ("action", "lab kill primary-1 --dir ${lab_dir}"),
        ("probe", "lab status --dir ${lab_dir}"),
        ("action", f"failover --to dr --yes {config} --unplanned --at=-2m --group drill-billing --accept-unfenced"),
        ("action", "lab kill dr-2 --dir ${lab_dir}"),
        ("action", "lab pause dr-1 --dir ${lab_dir}"),
        ("action", "lab resume dr-1 --dir ${lab_dir}"),
        (
            "action",
            f"failback --yes {config} {old_primary} --salvage-dir ${{lab_dir}}/salvage --accept-unfenced",
        ),
    ]
    assert [each.get("background", False) for each in document["method"]] == [True, False, False, False, True] + [
        False
    ] * 3
    pauses = [each.get("pauses") for each in document["method"]]
    assert pauses == [None, {"before": 3.0}, None, None, None, {"before": 2.0}, None, {"after": 1.0}]
    assert [words(each) for each in document["rollbacks"]] == ["lab restart primary --dir ${lab_dir}"]
    assert document["configuration"] == {
        "lab_dir": {"type": "env", "key": "LAB_DIR", "default": "/lab"},
        "primary_cluster_id": {"type": "env", "key": "PRIMARY_CLUSTER_ID", "default": ""},
    }


def test_what_has_no_command_is_listed_with_its_line_in_the_document_too(tmp_path):
    result = exported(tmp_path)
    listed = [(each.line, each.what) for each in result.not_exported]
    assert listed == [
        (3, "lab.wan"),
        (9, "mirrored"),
        (10, "positions_captured"),
        (11, "acknowledged"),
        (12, "safety.time_limit_seconds"),
        (14, "workload"),
        (15, "mirror"),
        (19, "wait until silent"),
        (20, "reset network on primary"),
        (21, "resumes: 1"),
        (26, "kill run at failover commit"),
        (27, listed[11][1]),
        (33, "restart mirror"),
        (34, "restart dr-2"),
        (35, "stop clients"),
        (38, "checks: duplicated"),
        (39, "objectives: rpo_records"),
        (42, "heal network on primary"),
    ]
    assert listed[11][1].startswith("in parallel: ")
    document = result.chaos_toolkit
    (extension,) = document["extensions"]
    assert [each["line"] for each in extension["not_exported"]] == [line for line, _ in listed]
    for each in result.not_exported:
        assert f"- line {each.line}: {each.what}: {each.reason}" in document["description"]


NO_COMMAND = {
    "credentials-expired",
    "foreign-writer",
    "mirror-killed",
    "poison-batch",
    "slow-wan",
    "unclean-election",
}
"""Their only disturbances are faults that only a drill injects."""


def test_every_part_of_the_library_is_exported_or_listed():
    """Nothing is dropped in silence."""
    refused = set()
    for path in library_files():
        file = load_experiment(path)
        try:
            result = export_experiment(file, Path("/lab"))
        except Refused:
            refused.add(path.stem)
            continue
        listed = {each.line for each in result.not_exported}
        names = {each["name"] for each in result.chaos_toolkit["method"]}
        for place, step in file.experiment.each_step():
            kept = describe(step) in names or step.do in ("hold", "parallel")
            assert kept or file.line(*place) in listed, (path, step)
        jsonschema.validate(json.loads(result.model_dump_json()), schemas()["drill.schema.json"])
    assert refused == NO_COMMAND


STATUS = '{"nodes": [{"name": "primary-1", "cluster": "primary", "state": "%s"}, {"cluster": "dr", "state": "up"}]}'


@pytest.mark.parametrize(
    ("condition", "state", "holds"),
    [("answers", "up", True), ("answers", "down", False), ("silent", "paused", True), ("silent", "up", False)],
)
def test_a_tolerance_holds_where_the_condition_does(tmp_path, condition, state, holds):
    text = TEXT.replace("condition: answers, cluster: primary", f"condition: {condition}, cluster: primary")
    probe = exported(tmp_path, text).chaos_toolkit["steady-state-hypothesis"]["probes"][0]
    for indent in (None, 2):
        said = json.dumps(json.loads(STATUS % state), indent=indent)
        assert bool(re.search(probe["tolerance"]["pattern"], said)) is holds


def test_the_hypothesis_has_one_probe_for_each_condition_and_the_doctor_once(tmp_path):
    probes = exported(tmp_path).chaos_toolkit["steady-state-hypothesis"]["probes"]
    assert [words(each).split()[0] for each in probes] == ["lab", "lab", "status", "doctor"]
    assert [isinstance(each["tolerance"], int) for each in probes] == [False, False, False, True]


def test_where_no_step_has_a_command_nothing_is_exported(tmp_path):
    method = TEXT[TEXT.index("  - { do: load") : TEXT.index("checks:")]
    with pytest.raises(Refused) as refused:
        exported(tmp_path, TEXT.replace(method, "  - { do: reset_network }\n"))
    assert "line 16: reset network on primary: only drkit drill run injects this fault" in refused.value.meaning


def test_the_document_goes_to_stdout_or_to_a_new_file(tmp_path):
    command = ["drill", "export", "primary-lost", "--dir", "/lab"]
    shown = in_process(command)
    assert shown.code == 0
    assert "not exported" in shown.err
    assert json.loads(shown.out)["title"] == "The primary is lost under load"
    out = tmp_path / "out.json"
    document = json.loads(in_process([*command, "--out", str(out), "--output", "json"]).out)
    assert json.loads(out.read_text()) == document["chaos_toolkit"] == json.loads(shown.out)
    assert (document["out"], document["actions"], document["probes"]) == (str(out), 3, 2)
    jsonschema.validate(document, schemas()["drill.schema.json"])


def test_of_several_links_each_command_names_what_it_is_of(tmp_path):
    text = """\
title: t
hypothesis: h
lab:
  links:
    - { source: east, target: hub, policy: prefix }
    - { source: west, target: hub, policy: prefix }
steady_state: { conditions: [{ condition: mirrored, link: west->hub, at_most_behind: 5 }] }
method:
  - { do: workload, link: east->hub, group: a }
  - { do: workload, link: west->hub, group: b }
  - { do: failover, to: hub, links: [west->hub] }
  - { do: failback, links: [west->hub] }
  - { do: failover, to: hub }
  - { do: reprotect, links: [west->hub] }
checks: [duplicated]
"""
    file = tmp_path / "x.yaml"
    file.write_text(text)
    result = export_experiment(load_experiment(file), None)
    assert "lab.links" in {part.what for part in result.not_exported}
    (probe,) = result.chaos_toolkit["steady-state-hypothesis"]["probes"]
    assert probe["provider"]["arguments"][:3] == ["doctor", "--to", "hub"]
    named, failback, every, reprotect = (each["provider"]["arguments"] for each in result.chaos_toolkit["method"])
    for words in (named, failback, reprotect):
        assert words[words.index("--link") + 1] == "west->hub"
    assert "--link" not in every
    assert ("--to" in every, "--to" in failback) == (True, False)
    assert failback[failback.index("--cluster-id") + 1] == "west=${west_cluster_id}"
    assert result.chaos_toolkit["configuration"]["west_cluster_id"]["key"] == "WEST_CLUSTER_ID"
