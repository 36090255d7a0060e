"""Which Java is used, and the certificates that it is given for fetching."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from drkit.lab.toolchain.java import find_ivy, find_java_home, java_major, spark_java_home
from drkit.lab.toolchain.repository import key_store, network_options
from drkit.model.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRKIT_JAVA_HOME", raising=False)


def _runtime(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return home


def test_the_bundled_runtime_is_java_17():
    assert java_major(find_java_home()) == 17


def test_a_chosen_java_17_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRKIT_JAVA_HOME", str(_runtime(tmp_path, "17.0.99")))
    assert find_java_home() == tmp_path


def test_another_java_is_refused_by_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRKIT_JAVA_HOME", str(_runtime(tmp_path, "21.0.1")))
    with pytest.raises(ConfigError, match="holds Java 21"):
        find_java_home()


def test_a_folder_without_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DRKIT_JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match="holds no Java runtime"):
        find_java_home()


def test_ivy_is_found_without_importing_pyspark():
    code = "import sys; from drkit.lab.toolchain.java import find_ivy; find_ivy(); print('pyspark' in sys.modules)"
    assert _python(code) == "False"
    assert find_ivy().is_file()


def test_sparks_java_drops_the_module_that_the_runtime_lacks_and_keeps_the_rest(tmp_path: Path):
    real = _runtime(tmp_path / "real one", "17.0.1")
    (real / "bin" / "java").write_text('#!/bin/sh\nfor argument in "$@"; do printf "[%s]" "$argument"; done\n')
    home = spark_java_home(tmp_path / "cache", real)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "", "Main"]
    shown = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert shown == "[-Xmx1g][-Da=b c][][Main]"


def test_keytool_reads_the_trust_store_that_is_written(tmp_path: Path):
    home = find_java_home()
    options = network_options(home, tmp_path)
    assert f"-Djavax.net.ssl.trustStore={tmp_path / 'trust.jks'}" in options
    command = [home / "bin" / "keytool", "-list", "-rfc", "-keystore", tmp_path / "trust.jks", "-storepass", "changeit"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pems = [block + "-----END CERTIFICATE-----" for block in listing.split("-----END CERTIFICATE-----")[:-1]]
    read_back = sorted(ssl.PEM_cert_to_DER_cert(pem[pem.index("-----BEGIN") :]) for pem in pems)
    assert len(read_back) > 10
    assert key_store(read_back) == (tmp_path / "trust.jks").read_bytes()


def test_the_environments_proxies_are_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost,.example.org")
    options = network_options(find_java_home(), tmp_path)
    assert "-Dhttps.proxyHost=proxy.example" in options
    assert "-Dhttps.proxyPort=3128" in options
    assert "-Dhttp.nonProxyHosts=localhost|*.example.org" in options


def _python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
