"""Image, compose, systemd and Kubernetes: files that hold together, with commands that the real CLI takes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from drkit.config import load_config
from tests.support.commands.bad_input import ROOT
from tests.support.commands.runbooks import parse

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
TIMERS = sorted((DEPLOY / "systemd").glob("*.timer"))
UID = 10001


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables from which the configurations take their secrets."""
    for name in ("PRIMARY_PASSWORD", "DR_PASSWORD", "PAGE_TOKEN"):
        monkeypatch.setenv(name, "a-secret-of-16-characters")


def documents() -> list[dict[str, Any]]:
    """Every resource that the kustomization applies."""
    names = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    return [each for name in names for each in yaml.safe_load_all((KUBERNETES / name).read_text())]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents() if each["kind"] == kind}


def pod_templates() -> dict[str, dict[str, Any]]:
    """The pods of Deployments and CronJobs, by name."""
    found = {name: each["spec"]["template"] for name, each in of_kind("Deployment").items()}
    jobs = of_kind("CronJob")
    return found | {name: each["spec"]["jobTemplate"]["spec"]["template"] for name, each in jobs.items()}


PODS = pod_templates()


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


# -- Kubernetes ------------------------------------------------------------------------------------


def test_the_kustomization_lists_every_file_and_no_other():
    kustomization = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
    files = {each.name for each in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == files
    assert kustomization["configMapGenerator"] == [{"name": "drkit", "files": ["drkit.toml"]}]
    images = {each["name"] for each in kustomization["images"]}
    assert images == {each["image"] for pod in PODS.values() for each in containers(pod)}


def test_what_is_asked_for_is_there():
    assert set(of_kind("Deployment")) == {"mirror", "page"}
    assert set(of_kind("CronJob")) == {"audit", "drill"}
    assert set(of_kind("PodDisruptionBudget")) == {"mirror"}
    names = [(each["kind"], each["metadata"]["name"]) for each in documents()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_restricted_and_its_commands_are_drkits(name):
    pod = PODS[name]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == UID
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False, "a Service named drkit would set variables that drkit refuses"
    assert pod["serviceAccountName"] in of_kind("ServiceAccount")
    volumes = {each["name"]: each for each in pod["volumes"]}
    for each in containers(PODS[name]):
        parse(("drkit", *each["args"]))
        boxed = each["securityContext"]
        assert boxed["allowPrivilegeEscalation"] is False
        assert boxed["readOnlyRootFilesystem"] is True
        assert boxed["capabilities"] == {"drop": ["ALL"]}
        assert {"requests", "limits"} <= each["resources"].keys()
        mounted = {mount["mountPath"] for mount in each["volumeMounts"]}
        assert mounted == {"/etc/drkit", "/var/lib/drkit", "/var/cache/drkit", "/tmp"}, name  # noqa: S108
        assert {mount["name"] for mount in each["volumeMounts"]} <= volumes.keys()
    assert volumes["config"]["configMap"]["name"] == "drkit"
    claims = [
        each["persistentVolumeClaim"]["claimName"] for each in volumes.values() if "persistentVolumeClaim" in each
    ]
    assert set(claims) <= of_kind("PersistentVolumeClaim").keys()
    if claims:
        assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch", "what is kept stays its owner's alone"


@pytest.mark.parametrize("name", ["mirror", "page"])
def test_probes_ask_what_the_command_serves(name):
    (container,) = PODS[name]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    served = {"mirror": {"/livez", "/readyz"}, "page": {"/livez", "/login"}}[name]
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/livez", "what else fails, a restart doesn't mend"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] in ports
        assert asked["path"] in served
    options = dict(zip(container["args"], container["args"][1:], strict=False))
    config = load_config(KUBERNETES / "drkit.toml")
    listens = options.get("--metrics-port") or config.serve.listen.rpartition(":")[2]
    assert set(ports.values()) == {int(listens)}
    assert options.get("--metrics-host", config.serve.listen.rpartition(":")[0]) == "0.0.0.0"  # noqa: S104 - in a pod


def test_selectors_meet_their_pods():
    for name, deployment in of_kind("Deployment").items():
        labels = PODS[name]["metadata"]["labels"]
        assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    budget = of_kind("PodDisruptionBudget")["mirror"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= PODS["mirror"]["metadata"]["labels"].items()
    assert budget["minAvailable"] < of_kind("Deployment")["mirror"]["spec"]["replicas"], "a node can be drained"
    service = of_kind("Service")["page"]["spec"]
    assert service["selector"].items() <= PODS["page"]["metadata"]["labels"].items()


def test_jobs_end_with_their_result():
    for job in of_kind("CronJob").values():
        spec = job["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0
        assert spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
        assert len(spec["schedule"].split()) == 5


def rendered(folder: Path = KUBERNETES) -> list[dict[str, Any]]:
    """What `kubectl apply -k` would apply."""
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kustomize_puts_them_together():
    found = rendered()
    kinds = sorted(each["kind"] for each in found)
    assert kinds == sorted([*(each["kind"] for each in documents()), "ConfigMap"])
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    assert config["data"]["drkit.toml"] == (KUBERNETES / "drkit.toml").read_text()
    text = yaml.safe_dump_all(found)
    assert text.count(f"name: {config['metadata']['name']}\n") == 1 + len(PODS), "each pod mounts this very one"
    assert {each["metadata"].get("namespace") for each in found if each["kind"] != "Namespace"} == {"drkit"}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_documented_overlay_puts_ones_own_configuration_and_images_there(tmp_path: Path):
    (overlay,) = re.findall(r"```yaml\n(apiVersion: kustomize.*?)```", (ROOT / "docs/deploy.md").read_text(), re.DOTALL)
    shutil.copytree(KUBERNETES, tmp_path / "deploy" / "kubernetes")
    (tmp_path / "my-drkit").mkdir()
    (tmp_path / "my-drkit" / "kustomization.yaml").write_text(overlay)
    (tmp_path / "my-drkit" / "drkit.toml").write_text("# mine\n")
    found = rendered(tmp_path / "my-drkit")
    (config,) = (each for each in found if each["kind"] == "ConfigMap")
    assert config["data"] == {"drkit.toml": "# mine\n"}
    text = yaml.safe_dump_all(found)
    assert text.count(f"name: {config['metadata']['name']}\n") == 1 + len(PODS)
    images = set(re.findall(r"image: (\S+)", text))
    assert images == {f"registry.example.com/{name}:0.1.0" for name in ("drkit", "drkit-all")}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubernetes_own_schemas_take_them():
    for each in rendered():
        kubernetes_validate.validate(each, "1.32", strict=True)


@pytest.mark.parametrize("file", [KUBERNETES / "drkit.toml", DEPLOY / "compose" / "drkit.toml"], ids=str)
def test_a_configuration_is_one(file: Path):
    config = load_config(file)
    assert config.links
    assert config.serve.plain_token == "a-secret-of-16-characters"  # noqa: S105 - made up above


# -- image and compose -----------------------------------------------------------------------------


def test_the_image_is_made_from_what_is_there():
    text = (DEPLOY / "Dockerfile").read_text()
    sources = [
        source for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for source in shlex.split(line)[:-1]
    ]
    allowed = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line[:1] == "!"}
    for source in (each for each in sources if each != "wheel[s]"):  # a folder that may be there
        assert (ROOT / source).exists(), source
        assert source in allowed or f"{source}/*.yaml" in allowed, f"{source} is left out of the build's context"
    links = [each for each in (ROOT / "drkit").rglob("*") if each.is_symlink()]
    for link in links:
        leads_to = link.resolve().relative_to(ROOT.resolve())
        assert any(leads_to.is_relative_to(source) for source in sources), f"{link} leads to {leads_to}"
    assert "wheels/*.whl" in allowed
    assert "ARG BASE=" in text
    assert f"USER {UID}:{UID}" in text
    assert f"echo 'drkit:x:{UID}:{UID}:drkit:/var/lib/drkit:/usr/sbin/nologin' >> /etc/passwd" in text, "for Spark"
    assert 'ENTRYPOINT ["drkit"]' in text


def test_compose_runs_drkits_commands_from_files_that_are_there():
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    clusters = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    services = compose["services"]
    assert set(services) == {"mirror", "page", "prometheus", "grafana"}
    for name in ("mirror", "page"):
        parse(("drkit", *services[name]["command"]))
        assert services[name]["read_only"] is True
        assert (ROOT / services[name]["build"]["dockerfile"]).exists()
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys() | clusters["services"].keys()
        for volume in service.get("volumes", ()):
            assert (ROOT / volume.partition(":")[0]).exists(), volume
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "on loopback only"
    config = load_config(DEPLOY / "compose" / "drkit.toml")
    assert {each.bootstrap_servers.partition(":")[0] for each in config.clusters.values()} <= set(clusters["services"])
    scraped = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    targets = {target for each in scraped for static in each["static_configs"] for target in static["targets"]}
    metrics_port = services["mirror"]["command"][services["mirror"]["command"].index("--metrics-port") + 1]
    listen_port = services["page"]["command"][-1].rpartition(":")[2]
    assert targets == {f"mirror:{metrics_port}", f"page:{listen_port}"}


# -- systemd ---------------------------------------------------------------------------------------


def commands(unit: Path) -> list[list[str]]:
    return [shlex.split(each) for each in re.findall(r"^ExecStart\w*=(.+)$", unit.read_text(), re.MULTILINE)]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_runs_drkit_as_a_user_of_its_own(unit: Path):
    found = commands(unit)
    assert found
    for program, *words in found:
        assert program == "/opt/drkit/bin/drkit"
        parse(("drkit", *words))
    text = unit.read_text()
    for line in ("User=drkit", "NoNewPrivileges=yes", "ProtectSystem=strict", "StateDirectory=drkit"):
        assert line in text
    assert "DRKIT_CONFIG=/etc/drkit/drkit.toml" in text


@pytest.mark.parametrize("name", ["drkit-mirror", "drkit-serve"])
def test_what_runs_until_it_is_stopped_is_reloaded_by_the_signal_that_it_answers(name: str):
    text = (DEPLOY / "systemd" / f"{name}.service").read_text()
    assert re.findall(r"^ExecReload=(.+)$", text, re.MULTILINE) == ["/bin/kill -HUP $MAINPID"]
    assert "\nRestartForceExitStatus=SIGHUP\n" in text, "systemd takes that signal for a clean end"
    assert "\nSuccessExitStatus=143\n" in text, "drkit's own exit code of SIGTERM is none that systemd knows"


def test_every_timer_has_its_service():
    assert {each.stem for each in TIMERS} == {"drkit-audit", "drkit-drill"}
    assert {each.stem for each in TIMERS} <= {each.stem for each in UNITS}
    assert {"drkit-mirror", "drkit-serve"} <= {each.stem for each in UNITS}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path):
    program = tmp_path / "drkit"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    files = []
    for each in (*UNITS, *TIMERS):
        copy = tmp_path / each.name
        copy.write_text(each.read_text().replace("/opt/drkit/bin/drkit", str(program)))
        files.append(copy)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False, timeout=120
    )
    said = [line for line in done.stderr.splitlines() if any(each.name in line for each in files)]
    assert not said, done.stderr
