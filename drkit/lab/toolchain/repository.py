"""The repository of jars: the central one or the user's own, and how Java reaches it.

A bundled Java runtime has its own certificates and ignores the proxy variables. On networks that inspect TLS, or have a
proxy, it would fail where pip works. So Ivy gets a trust store with the runtime's and the machine's certificates, and
the proxies of the environment.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from drkit.files import write_atomically
from drkit.model.errors import ConfigError

REPOSITORY_VARIABLE = "DRKIT_JAR_REPOSITORY"
_SCHEMES = {"http", "https", "file"}


def chosen_repository(given: str | None) -> str | None:
    """The repository's URL without a trailing slash; None: the central one.

    Args:
        given: the value of `--repository`; None: `$DRKIT_JAR_REPOSITORY`, if it is set.

    Raises:
        ConfigError: it isn't the URL of a repository; the message doesn't repeat it, since it may hold a password.
    """
    url = given if given is not None else os.environ.get(REPOSITORY_VARIABLE)
    if not url:
        return None
    where = "--repository" if given is not None else f"the environment variable {REPOSITORY_VARIABLE}"
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) or parts.scheme == "file"
    except ValueError:
        named, parts = False, urlsplit("")
    if "@" in parts.netloc:
        raise ConfigError(
            f"{where}: the URL holds a user or password",
            meaning="Java's client would not send them",
            remedy="Name a repository that this network may read, or a folder: file:///path",
        )
    if parts.scheme not in _SCHEMES or not named:
        raise ConfigError(
            f"{where} is not the URL of a Maven repository",
            remedy="Write https://host/path or file:///path, the folder that holds org/apache/…",
        )
    return url.rstrip("/")


_PEM = re.compile(r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
_STORE_WORD = "changeit"  # Java's usual password: a trust store holds public certificates, nothing secret


def network_options(java_home: Path, folder: Path) -> list[str]:
    """`-D` options for a Java process that fetches; writes the trust store into `folder`."""
    options = [*_proxy_options()]
    certificates = _java_certificates(java_home) | _machine_certificates()
    if certificates:
        store = folder / "trust.jks"
        write_atomically(store, key_store(sorted(certificates)))
        options += [
            f"-Djavax.net.ssl.trustStore={store}",
            "-Djavax.net.ssl.trustStoreType=JKS",
            f"-Djavax.net.ssl.trustStorePassword={_STORE_WORD}",
        ]
    return options


def key_store(certificates: list[bytes]) -> bytes:
    """A Java key store (JKS, version 2) that trusts these DER certificates.

    Written by hand because keytool takes a JVM start per certificate. The format: magic, version,
    count, then per entry a tag (2: trusted certificate), alias, date, type and DER, and at the end
    SHA-1 over the password (UTF-16), a fixed phrase and everything before.
    """
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, der in enumerate(certificates):
        body += struct.pack(">I", 2) + _utf(f"certificate-{number}") + struct.pack(">Q", 0)
        body += _utf("X.509") + struct.pack(">I", len(der)) + der
    seal = hashlib.sha1(_STORE_WORD.encode("utf-16-be") + b"Mighty Aphrodite" + body)  # noqa: S324 - the format's own
    return body + seal.digest()


def _utf(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">H", len(raw)) + raw


def _java_certificates(java_home: Path) -> set[bytes]:
    keytool, store = java_home / "bin" / "keytool", java_home / "lib" / "security" / "cacerts"
    if not keytool.exists() or not store.exists():
        return set()
    listing = subprocess.run(
        [keytool, "-list", "-rfc", "-keystore", store, "-storepass", _STORE_WORD],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return _der(listing.stdout)


def _machine_certificates() -> set[bytes]:
    """The certificates of the bundles that Python, pip and curl use on this machine."""
    defaults = ssl.get_default_verify_paths()
    files = [Path(value) for name in _BUNDLE_VARIABLES if (value := os.environ.get(name))]
    files += [Path(path) for path in (defaults.cafile, defaults.openssl_cafile) if path]
    for folder in {defaults.capath, defaults.openssl_capath} - {None}:
        files += sorted(path for path in Path(str(folder)).glob("*") if path.suffix in {".crt", ".pem"})
    found: set[bytes] = set()
    for file in dict.fromkeys(files):
        if file.is_file() and os.access(file, os.R_OK):
            found |= _der(file.read_text(encoding="ascii", errors="replace"))
    return found


def _der(text: str) -> set[bytes]:
    return {ssl.PEM_cert_to_DER_cert(block) for block in _PEM.findall(text)}


def _proxy_options() -> list[str]:
    options: list[str] = []
    proxies = urllib.request.getproxies()
    for scheme in ("http", "https"):
        address = proxies.get(scheme)
        if not address:
            continue
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.hostname:
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={parts.port or 80}"]
    without = proxies.get("no")
    if options and without:
        hosts = [f"*{host}" if host.startswith(".") else host for host in re.split(r"[,\s]+", without) if host]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options
