"""The two-person rule: which files are an approval of a plan, and what may be done with it."""

import json
from datetime import timedelta
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from drkit.cli.application import application
from drkit.config.schema.config import ApprovalsConfig, EvidenceConfig
from drkit.evidence.approvals import approval_of, read_approvals
from drkit.evidence.signing import make_key, open_signer
from drkit.failover.plan.approvals import check_approved
from drkit.model.clock import now
from drkit.model.errors import ConfigError, Refused
from drkit.model.runs import Approval

DIGEST, OTHER = "a" * 64, "b" * 64
LOSS = "--accept-loss 5"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """The keys of three operators, and of a stranger."""
    folder = tmp_path_factory.mktemp("keys")
    return {name: (folder / name, make_key(folder / name)) for name in ("ana", "ben", "eve", "stranger")}


@pytest.fixture
def operators(keys):
    return {name: keys[name][1] for name in ("ana", "ben", "eve")}


@pytest.fixture
def approve(keys, tmp_path):
    """Writes an approval, and names its file."""

    def write(name, digest=DIGEST, flags=(), *, ago=timedelta(0), valid=timedelta(hours=1)):
        signer, _ = open_signer(EvidenceConfig(), keys[name][0])
        file = tmp_path / f"{name}-{len(list(tmp_path.iterdir()))}"
        file.write_bytes(approval_of(digest, flags, signer, now() - ago, valid)[0])
        return file

    return write


def test_two_operators_approve_a_plan_and_the_flags_that_both_accept(approve, operators):
    files = [approve("ana", flags=(LOSS, "--accept-unfenced")), approve("ben", flags=(LOSS,))]
    found = read_approvals(files, operators, now())
    assert found == Approval(DIGEST, ("ana", "ben"), frozenset({LOSS}))
    rule = ApprovalsConfig(operators=operators)
    check_approved(rule, found, DIGEST, frozenset({LOSS}), "it")
    with pytest.raises(Refused, match="uses --accept-unfenced, which was not approved"):
        check_approved(rule, found, DIGEST, frozenset({LOSS, "--accept-unfenced"}), "it")
    with pytest.raises(Refused, match="is not what ana and ben approved"):
        check_approved(rule, found, OTHER, frozenset(), "it")
    with pytest.raises(Refused, match="is not what"):
        check_approved(rule, found, "", frozenset(), "what a run is to accept now")


def test_one_operator_alone_is_none(approve, operators):
    ana = approve("ana")
    for files in ([ana], [ana, approve("ana")]):
        with pytest.raises(Refused, match="two operators must approve: only ana did"):
            read_approvals(files, operators, now())
    with pytest.raises(Refused, match="approved different plans"):
        read_approvals([ana, approve("ben", OTHER)], operators, now())
    with pytest.raises(Refused, match="which is not an operator's"):
        read_approvals([ana, approve("stranger")], operators, now())
    for late in ({"ago": timedelta(hours=2)}, {"ago": timedelta(hours=-1)}):
        with pytest.raises(Refused, match="the approval of ben is valid from"):
            read_approvals([ana, approve("ben", **late)], operators, now())


@pytest.mark.parametrize("harm", ["payload", "signature", "text", "list", "bundle", "empty"])
def test_what_was_changed_approves_nothing(approve, operators, harm):
    ana, ben = approve("ana"), approve("ben")
    envelope = json.loads(ben.read_bytes())
    if harm == "payload":
        envelope["payload"] = json.loads(approve("ben", OTHER).read_bytes())["payload"]
    elif harm == "signature":
        envelope["signatures"][0]["sig"] = json.loads(ana.read_bytes())["signatures"][0]["sig"]
    elif harm == "bundle":
        envelope["payloadType"], envelope["payload"] = "x", "e30="
    written = {"text": "dear diary", "list": "[]", "empty": ""}.get(harm, json.dumps(envelope))
    ben.write_text(written)
    with pytest.raises(Refused, match="is not a valid approval"):
        read_approvals([ana, ben], operators, now())


def test_keys_that_are_none_or_one_are_told(operators, keys, tmp_path):
    with pytest.raises(ConfigError, match="have the same key"):
        read_approvals([], operators | {"twin": _copy(keys["ana"][1], tmp_path)}, now())
    with pytest.raises(ConfigError, match=r"approvals\.operators\.none"):
        read_approvals([], {"none": tmp_path / "none.pub"}, now())
    with pytest.raises(ConfigError, match="can't be read"):
        read_approvals([tmp_path / "none"], operators, now())
    with pytest.raises(ValueError, match="at least 2"):
        ApprovalsConfig(operators={"ana": keys["ana"][1]})


def _copy(file: Path, folder: Path) -> Path:
    (folder / "twin.pub").write_bytes(file.read_bytes())
    return folder / "twin.pub"


def test_without_an_approval_nothing_is_done_but_in_an_emergency(operators):
    check_approved(None, None, DIGEST, frozenset({LOSS}), "it")
    rule = ApprovalsConfig(operators=operators)
    with pytest.raises(Refused, match="it is not approved") as told:
        check_approved(rule, None, DIGEST, frozenset(), "it")
    assert f"drkit evidence approve {DIGEST}" in told.value.remedy
    assert "--emergency REASON" in told.value.remedy
    alone = Approval(emergency="ben is on a plane")
    check_approved(rule, alone, DIGEST, frozenset({LOSS}), "it")
    assert alone.journaled() == {"emergency": "ben is on a plane"}
    with pytest.raises(Refused, match="allows no emergency"):
        check_approved(ApprovalsConfig(operators=operators, emergency=False), alone, DIGEST, frozenset(), "it")


def test_the_command_signs_a_digest_and_overwrites_nothing(keys, operators, tmp_path):
    schema = Path(__file__).parents[3] / "docs" / "schemas" / "evidence.schema.json"
    files = []
    for name in ("ana", "ben"):
        files.append(tmp_path / name)
        command = ["evidence", "approve", DIGEST, "--key", str(keys[name][0]), "--out", str(files[-1])]
        command += ["--accept-loss", "5", "--output", "json"]
        done = CliRunner().invoke(application(("evidence",)), command)
        assert done.exit_code == 0, done.output
        jsonschema.validate(json.loads(done.stdout), json.loads(schema.read_text()))
    assert read_approvals(files, operators, now()).allows == {LOSS}
    again = CliRunner().invoke(application(("evidence",)), command)
    assert (again.exit_code, "File exists" in again.stderr) == (2, True)
    no_key = [*command[:4], str(tmp_path / "none"), "--out", str(tmp_path / "new")]
    assert CliRunner().invoke(application(("evidence",)), no_key).exit_code == 2
    no_plan = ["evidence", "approve", str(tmp_path / "none"), *command[3:5], "--out", str(tmp_path / "new")]
    assert CliRunner().invoke(application(("evidence",)), no_plan).exit_code == 2
