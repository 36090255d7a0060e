"""Keys by file and by command; the envelope in the one form that is accepted; openssl's keys and signatures fit."""

import json
import shutil
import stat
import subprocess
import sys

import pytest

from drkit.config.schema.config import EvidenceConfig
from drkit.evidence import verifier
from drkit.evidence.signing import envelope_of, make_key, open_signer
from drkit.model.errors import ConfigError, DrkitError, Refused

STATEMENT = json.dumps(
    {"_type": verifier.STATEMENT_TYPE, "predicateType": verifier.PREDICATE_TYPE, "predicate": {}, "subject": []}
).encode()
OPENSSL = shutil.which("openssl")
needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="openssl is not installed")


def enveloped(folder, signer):
    (folder / verifier.ENVELOPE).write_bytes(envelope_of(STATEMENT, signer))
    (folder / verifier.PUBLIC_KEY).write_bytes(signer.public_pem)
    return verifier.check_signature(folder, None)


def test_a_key_is_made_once_and_signs(tmp_path):
    key = tmp_path / "keys" / "signer"
    public = make_key(key)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    with pytest.raises(Refused, match="exists"):
        make_key(key)
    signer, made = open_signer(EvidenceConfig(key=key))
    assert made is None
    assert signer.public_pem == public.read_bytes()
    statement, keyid = enveloped(tmp_path, signer)
    assert (statement["predicate"], len(keyid)) == ({}, 64)


def test_without_a_key_one_is_made_in_the_state_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    first, made = open_signer(EvidenceConfig())
    assert made == tmp_path / "drkit" / "evidence.key"
    again, nothing = open_signer(EvidenceConfig())
    assert (again.public_pem, nothing) == (first.public_pem, None)


@needs_openssl
def test_keys_and_signatures_of_openssl_fit(tmp_path):
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    subprocess.run([OPENSSL, "genpkey", "-algorithm", "ed25519", "-out", str(key)], check=True, capture_output=True)
    subprocess.run([OPENSSL, "pkey", "-in", str(key), "-pubout", "-out", str(public)], check=True, capture_output=True)
    by_file, _ = open_signer(EvidenceConfig(key=key))
    assert by_file.public_pem == public.read_bytes()
    script = tmp_path / "sign.sh"
    script.write_text(
        f'f=$(mktemp); trap "rm -f $f" EXIT; cat > "$f"; openssl pkeyutl -sign -rawin -inkey {key} -in "$f"\n'
    )
    by_command, _ = open_signer(EvidenceConfig(sign_command=("sh", str(script)), public_key=public))
    assert by_command.sign(b"message") == by_file.sign(b"message")
    enveloped(tmp_path, by_command)


@pytest.mark.parametrize(
    "program", ["print('no signature')", "raise SystemExit(3)", "import os; os.write(1, b'x' * 63)"]
)
def test_a_command_that_does_not_sign_is_an_error(tmp_path, program):
    public = make_key(tmp_path / "key")
    signer, _ = open_signer(EvidenceConfig(sign_command=(sys.executable, "-c", program), public_key=public))
    with pytest.raises(DrkitError, match="no Ed25519 signature"):
        signer.sign(b"message")


def test_a_wrong_key_is_a_configuration_error(tmp_path):
    (tmp_path / "key").write_text("no key")
    with pytest.raises(ConfigError, match="not a usable private key"):
        open_signer(EvidenceConfig(key=tmp_path / "key"))
    with pytest.raises(ConfigError, match="can't be read"):
        open_signer(EvidenceConfig(key=tmp_path / "none"))
    with pytest.raises(ValueError, match="belong together"):
        EvidenceConfig(public_key=tmp_path / "key")


def test_another_form_of_the_same_envelope_is_refused(tmp_path):
    make_key(tmp_path / "key")
    signer, _ = open_signer(EvidenceConfig(key=tmp_path / "key"))
    enveloped(tmp_path, signer)
    file = tmp_path / verifier.ENVELOPE
    file.write_text(json.dumps(json.loads(file.read_text())))
    with pytest.raises(verifier.Broken, match="was changed"):
        verifier.check_signature(tmp_path, None)


def test_another_key_than_the_trusted_one_is_refused(tmp_path):
    make_key(tmp_path / "key")
    other = make_key(tmp_path / "other").read_bytes()
    signer, _ = open_signer(EvidenceConfig(key=tmp_path / "key"))
    enveloped(tmp_path, signer)
    with pytest.raises(verifier.Broken, match="not by the given key"):
        verifier.check_signature(tmp_path, other)
