"""Alerts and dashboard: every metric and label is one that drkit exports, every alert has its runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from drkit.drill.runbook import read_runbook
from drkit.model.audit.audit_result import Counts
from drkit.model.audit.continuous_audit import AuditProgress
from drkit.model.clock import iso, now
from drkit.model.link_state import Problem
from drkit.model.runs import RunSummary
from drkit.observe.audit_history import AuditOfLink
from drkit.observe.drill_history import DRILL, PASSED, drill_kinds
from drkit.observe.drill_history import VERDICTS as DRILL_VERDICTS
from drkit.observe.metrics.audit_metrics import AuditCollector as ContinuousCollector
from drkit.observe.metrics.status_metrics import STATES, DrillCollector, LastAuditCollector, StatusCollector
from tests.support.commands.bad_input import ROOT
from tests.support.pages.page import LATENCY, LINK, snapshot, worker

DEPLOY = ROOT / "deploy"
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus itself puts on what it scrapes."""
_METRIC = re.compile(r"\bdrkit_[a-z_]+")
_SELECTOR = re.compile(r"\b(drkit_[a-z_]+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"""([a-z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)\"""")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")


def exported(*collectors: Collector) -> dict[str, dict[str, set[str]]]:
    """What these collectors export: by metric the values of each of its labels."""
    registry = CollectorRegistry(auto_describe=False)
    for each in collectors:
        registry.register(each)
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            for name, value in sample.labels.items():
                found.setdefault(sample.name, {}).setdefault(name, set()).add(value)
            found.setdefault(sample.name, {})
    return found


@pytest.fixture(scope="module")
def metrics() -> dict[str, dict[str, set[str]]]:
    """All that `drkit serve` and `drkit audit watch` export, of links on which everything is known."""
    at = now()
    problem = Problem("stalled", "flights", 0, "it stands still", "Look at it", halted=True, since=at)
    link = snapshot(statistics=(worker(latency=LATENCY),), problems=(problem,))
    audit = AuditOfLink("run", "primary->dr", at - timedelta(hours=1), "clean", {"matched": 5}, "")
    drill = RunSummary("drill", DRILL, PASSED, at, at, "primary lost")
    progress = AuditProgress(
        "run",
        "primary->dr",
        iso(at),
        latency_seconds=1.0,
        reconciled_at=iso(at),
        topics={"flights": Counts()},
        through={"flights:0": 5},
    )
    return exported(
        StatusCollector(lambda: [link]),
        LastAuditCollector(lambda: [audit]),
        DrillCollector(lambda: [replace(each, changes=()) for each in drill_kinds([drill])]),
        ContinuousCollector(LINK, lambda: (progress, True)),
    )


def rules() -> list[dict]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict:
    return json.loads((DEPLOY / "grafana" / "drkit.json").read_text())


def expressions() -> Iterable[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    found = dashboard()
    for panel in found["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']} {target['refId']}", target["expr"]
    for variable in found["templating"]["list"]:
        if isinstance(variable["query"], dict):
            yield f"variable {variable['name']}", variable["query"]["query"]


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize("expression", [text for _, text in EXPRESSIONS], ids=[name for name, _ in EXPRESSIONS])
def test_what_is_asked_for_is_exported(metrics, expression):
    names = set(_METRIC.findall(expression))
    assert names, expression
    assert names <= metrics.keys(), names - metrics.keys()
    for name, selector in _SELECTOR.findall(expression):
        labels = metrics[name]
        for label, value in _LABEL.findall(selector):
            assert label in labels.keys() | OF_PROMETHEUS, f"{name} has no label {label}"
            if label in {"state", "certainty", "verdict", "treatment"} and not value.startswith("$"):
                known = _values_of(name, label)
                assert set(value.split("|")) <= known, f"{label} of {name} is one of {sorted(known)}"
    grouped = {each.strip() for group in _GROUPING.findall(expression) for each in group.split(",")}
    assert grouped <= {label for name in names for label in metrics[name]} | OF_PROMETHEUS
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def _values_of(name: str, label: str) -> set[str]:
    """Every value that a label may have; a snapshot has some of them."""
    from drkit.model.offsets import Certainty  # noqa: PLC0415 - read by name
    from drkit.observe.audit_history import VERDICTS  # noqa: PLC0415 - as above

    return {
        ("drkit_link_state", "state"): set(STATES),
        ("drkit_group_positions", "certainty"): {each.value for each in Certainty},
        ("drkit_last_audit_verdict", "verdict"): set(VERDICTS),
        ("drkit_drill_last_verdict", "verdict"): set(DRILL_VERDICTS),
    }[name, label]


def test_a_mistyped_metric_or_label_would_be_found(metrics):
    with pytest.raises(AssertionError):
        test_what_is_asked_for_is_exported(metrics, "drkit_recovery_point_second > 5")
    with pytest.raises(AssertionError):
        test_what_is_asked_for_is_exported(metrics, 'drkit_link_state{status="stopped"} == 1')
    with pytest.raises(AssertionError):
        test_what_is_asked_for_is_exported(metrics, 'drkit_link_state{state="stoped"} == 1')


def test_the_documentation_names_every_metric(metrics):
    text = (ROOT / "docs" / "observability.md").read_text()
    documented = set(_METRIC.findall(text))
    for name in metrics:
        if name.endswith("_created"):  # the client library's own, of a counter
            continue
        assert re.sub("_(count|sum)$", "", name) in documented, name


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_every_alert_says_what_it_means_and_names_its_runbook(rule):
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"]["summary"]
    file, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^## (.+)$", (ROOT / file).read_text(), re.MULTILINE)
    assert anchor == rule["alert"].lower()
    assert rule["alert"] in headings


def test_alerts_and_runbook_are_the_same_set():
    headings = re.findall(r"^## (.+)$", (ROOT / "runbooks" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()], "in the order of the rules"
    assert read_runbook(ROOT / "runbooks" / "alerts.md").of_drkit()


def test_the_dashboard_is_whole():
    found = dashboard()
    panels = found["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for each in panels:
        place = each["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{each['title']} lies on another panel"
        assert max(x for x, _ in cells) < 24
        taken |= cells
    names = {each["name"] for each in found["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", json.dumps(found)))
    assert used <= names
    provisioned = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert provisioned["datasources"][0]["type"] == "prometheus"


def test_prometheus_scrapes_the_job_that_the_alerts_name():
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    assert scraped["rule_files"] == ["alerts.yml"]
    jobs = {each["job_name"] for each in scraped["scrape_configs"]}
    named = {value for _, text in EXPRESSIONS for label, value in _LABEL.findall(text) if label == "job"}
    assert named - {"$job"} <= jobs


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "doesn't fire"])
@pytest.mark.parametrize("alert", [rule["alert"] for rule in rules()])
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(alert, fires):
    cases = yaml.safe_load((ROOT / "tests/unit/deploy/alerts_test.yml").read_text())["tests"]
    expected = [each for case in cases for each in case.get("alert_rule_test", ()) if each["alertname"] == alert]
    assert any(bool(each["exp_alerts"]) is fires for each in expected)


@pytest.mark.parametrize(
    "check",
    [
        ("check", "rules", "deploy/prometheus/alerts.yml"),
        ("check", "config", "--syntax-only", "deploy/prometheus/prometheus.yml"),
        ("test", "rules", "tests/unit/deploy/alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_takes_them(check):
    """Prometheus' own tool, where it is installed (Debian's package prometheus brings it)."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed here")
    *words, file = check
    done = subprocess.run([promtool, *words, ROOT / file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
