"""One cluster configuration for four clients: librdkafka, kafka-python, aiokafka and Java.

`config/schema/config.py` states which librdkafka names a configuration may use (`CLIENT_PROPERTIES`). Each
function here maps all of them; a value that a client can't express is a `ConfigError` that names
the property, never a silent difference between clients. The results hold secrets: never log them.

`packed` makes a configuration fit for another machine, with the contents of files instead of their paths, and
`unpacked` makes temporary files of them there (Python's TLS reads a client's certificate only from files): workers of a
Spark cluster don't have the certificates and keys of the machine that reads the configuration. On Linux these files
are in memory without a name in any folder, and end with the process; elsewhere they are in a folder that only its owner
can read.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

from drkit.config.schema.config import ClusterConfig
from drkit.model.errors import ConfigError

if TYPE_CHECKING:
    from drkit.kafka.config.oauth_tokens import Oidc, TokenSettings


PROTOCOLS = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})
MECHANISMS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
"""SASL mechanisms that need no more than a user name and a password, and their JAAS modules."""
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
"""Kerberos."""
MSK_IAM = "AWS_MSK_IAM"
"""OAUTHBEARER to a broker, with tokens that AWS's signer makes."""
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_JAVA_MSK_IAM = {
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
"""Of AWS's library for Java clients, which has to be on their class path."""
_OAUTH = "sasl.oauthbearer."
_OAUTH_NEEDED = tuple(_OAUTH + name for name in ("method", "client.id", "client.secret", "token.endpoint.url"))


_P = ParamSpec("_P")
_R = TypeVar("_R")
_LONGEST_MS = {"socket.timeout.ms": 300_000, "request.timeout.ms": 900_000}
"""As librdkafka has them; it takes no more."""
_LEAST_MS = 10


def _naming_the_cluster(dialect: Callable[_P, _R]) -> Callable[_P, _R]:
    """Prefix errors with the location of the cluster's properties."""

    @wraps(dialect)
    def named(*args: _P.args, **options: _P.kwargs) -> _R:
        try:
            return dialect(*args, **options)
        except ConfigError as error:
            place = next((each.place for each in args if isinstance(each, ClusterConfig)), "")
            if not place:
                raise
            raise ConfigError(f"{place}.client: {error.what}", remedy=error.remedy) from error

    return named


@_naming_the_cluster
def confluent_config(cluster: ClusterConfig, **extra: str | int | bool) -> dict[str, Any]:
    """Configuration for a confluent-kafka client: the properties as they are.

    `extra` holds further librdkafka properties with underscores for dots (``group_id="x"``).

    Raises:
        ConfigError: a value that not every client of drkit can express.
    """
    properties = _checked(cluster)
    config: dict[str, Any] = {"bootstrap.servers": _servers(cluster), "log.connection.close": False}
    config.update(properties)
    if properties.get("sasl.mechanisms") == MSK_IAM:
        config |= {"sasl.mechanisms": OAUTHBEARER, "oauth_cb": _librdkafka_tokens(_msk_iam(cluster))}
    config.update({name.replace("_", "."): value for name, value in extra.items()})
    return config


@_naming_the_cluster
def kafka_python_config(cluster: ClusterConfig) -> dict[str, Any]:
    """Keyword arguments for a kafka-python client.

    Raises:
        ConfigError: a value that kafka-python can't express.
    """
    properties = _checked(cluster)
    protocol = properties.get("security.protocol", "PLAINTEXT")
    config: dict[str, Any] = {"bootstrap_servers": _servers(cluster).split(","), "security_protocol": protocol}
    if "client.id" in properties:
        config["client_id"] = properties["client.id"]
    timeout = _timeout_ms(properties)
    if timeout is not None:
        config["request_timeout_ms"] = timeout
    if protocol.startswith("SASL"):
        config |= _sasl(cluster, properties, aiokafka=False)
    if protocol.endswith("SSL"):
        config["ssl_context"] = _ssl_context(properties)
        config["ssl_check_hostname"] = _checks_hostname(properties)
    return config


@_naming_the_cluster
def aiokafka_config(cluster: ClusterConfig) -> dict[str, Any]:
    """Keyword arguments for aiokafka's client, except for time-outs.

    Raises:
        ConfigError: a value that aiokafka can't express.
    """
    properties = _checked(cluster)
    protocol = properties.get("security.protocol", "PLAINTEXT")
    config: dict[str, Any] = {
        "bootstrap_servers": _servers(cluster),
        "security_protocol": protocol,
        "client_id": properties.get("client.id", "drkit"),
    }
    if protocol.startswith("SASL"):
        config |= _sasl(cluster, properties, aiokafka=True)
    if protocol.endswith("SSL"):
        config["ssl_context"] = _ssl_context(properties)
    return config


@_naming_the_cluster
def java_properties(cluster: ClusterConfig) -> dict[str, str]:
    """Properties for a Java client: Kafka's own tools. drkit's Spark jobs read with Python.

    They contain certificates and keys as text, so they are one file to hand over.

    Raises:
        ConfigError: a value that Java's client can't express.
    """
    properties = _checked(cluster)
    protocol = properties.get("security.protocol", "PLAINTEXT")
    java = {"bootstrap.servers": _servers(cluster), "security.protocol": protocol}
    for name in ("client.id", "client.rack"):
        if name in properties:
            java[name] = properties[name]
    timeout = _timeout_ms(properties)
    if timeout is not None:
        java["request.timeout.ms"] = str(timeout)
    if protocol.startswith("SASL"):
        mechanism = properties["sasl.mechanisms"]
        java["sasl.mechanism"] = mechanism
        if mechanism == OAUTHBEARER:
            java |= _java_oauth(_oidc(properties))
        elif mechanism == MSK_IAM:
            java |= _JAVA_MSK_IAM
        else:
            login = {"username": properties["sasl.username"], "password": properties["sasl.password"]}
            java["sasl.jaas.config"] = _jaas(MECHANISMS[mechanism], login)
    if protocol.endswith("SSL"):
        java.update(_java_ssl(properties))
    return java


def java_properties_text(properties: Mapping[str, str]) -> str:
    """The text of a ``.properties`` file that holds exactly these properties (it holds secrets)."""
    return "".join(f"{_escaped(name, key=True)}={_escaped(value, key=False)}\n" for name, value in properties.items())


def _servers(cluster: ClusterConfig) -> str:
    return ",".join(server.strip() for server in cluster.bootstrap_servers.split(","))


def _checked(cluster: ClusterConfig) -> dict[str, str]:
    """The client properties, checked and normalised: one name for the mechanism, upper case values."""
    try:
        properties = cluster.properties()
    except ValueError as error:
        raise ConfigError(
            f"a client property can't be read: {error}", remedy="Set the variable or correct the file"
        ) from None
    protocol = properties.get("security.protocol")
    if protocol is not None:
        properties["security.protocol"] = protocol = protocol.upper()
        if protocol not in PROTOCOLS:
            raise _bad("security.protocol", f"must be one of {', '.join(sorted(PROTOCOLS))}")
    mechanism = properties.pop("sasl.mechanism", None)
    if mechanism is not None and properties.setdefault("sasl.mechanisms", mechanism) != mechanism:
        raise _bad("sasl.mechanism", "differs from sasl.mechanisms; give one of them")
    _check_sasl(properties, needed=(protocol or "").startswith("SASL"))
    if properties.get("sasl.mechanisms") == MSK_IAM:
        if protocol != "SASL_SSL":
            raise _bad("security.protocol", f"must be SASL_SSL: sasl.mechanisms is {MSK_IAM}")
        _msk_iam(cluster)
    _check_ssl(properties, used=(protocol or "").endswith("SSL"))
    for name, longest in _LONGEST_MS.items():
        value = properties.get(name, str(longest))
        if not re.fullmatch("[0-9]{1,9}", value) or not _LEAST_MS <= int(value) <= longest:
            raise _bad(name, f"must be a number of milliseconds from {_LEAST_MS} to {longest:,}")
    return properties


def _check_sasl(properties: dict[str, str], *, needed: bool) -> None:
    given = [name for name in properties if name.startswith("sasl.") or name == "https.ca.location"]
    if not needed:
        if given:
            raise _bad(given[0], "is given, but security.protocol is not SASL_PLAINTEXT or SASL_SSL")
        return
    if "sasl.mechanisms" not in properties:
        raise _bad("sasl.mechanisms", f"is missing: security.protocol is {properties['security.protocol']}")
    properties["sasl.mechanisms"] = mechanism = properties["sasl.mechanisms"].upper()
    if mechanism == GSSAPI:
        from drkit.kafka.config.kerberos import why_not  # noqa: PLC0415 - asks the installed clients

        raise _bad("sasl.mechanisms", why_not())
    if mechanism not in {*MECHANISMS, OAUTHBEARER, MSK_IAM}:
        known = ", ".join((*MECHANISMS, OAUTHBEARER, MSK_IAM))
        raise _bad("sasl.mechanisms", f"must be one of {known}; others can't be mapped to every client")
    needed_names = {OAUTHBEARER: _OAUTH_NEEDED, MSK_IAM: ()}.get(mechanism, ("sasl.username", "sasl.password"))
    for name in needed_names:
        if name not in properties:
            raise _bad(name, f"is missing: sasl.mechanisms is {mechanism}")
    _check_nothing_else(given, mechanism)
    if mechanism == OAUTHBEARER:
        _check_oauth(properties)


def _check_nothing_else(given: list[str], mechanism: str) -> None:
    for name in given:
        of_oauth = name.startswith(_OAUTH) or name == "https.ca.location"
        fits = mechanism != MSK_IAM and of_oauth == (mechanism == OAUTHBEARER)
        if not fits and name != "sasl.mechanisms":
            raise _bad(name, f"is given, but sasl.mechanisms is {mechanism}")


def _check_oauth(properties: dict[str, str]) -> None:
    properties[_OAUTH + "method"] = properties[_OAUTH + "method"].lower()
    if properties[_OAUTH + "method"] != "oidc":
        raise _bad(_OAUTH + "method", "must be oidc: client credentials against a token endpoint")
    endpoint = urlsplit(properties[_OAUTH + "token.endpoint.url"])
    if endpoint.scheme not in {"http", "https"} or not endpoint.hostname or endpoint.username is not None:
        raise _bad(_OAUTH + "token.endpoint.url", "must be an http or https address, without a user in it")
    if "https.ca.location" in properties and not Path(properties["https.ca.location"]).is_file():
        raise _bad("https.ca.location", "must be a PEM file that can be read")
    _oidc(properties)


def _oidc(properties: Mapping[str, str]) -> Oidc:
    from drkit.kafka.config.oauth_tokens import Oidc  # noqa: PLC0415 - see above

    extensions: dict[str, str] = {}
    text = properties.get(_OAUTH + "extensions", "")
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = pair.partition("=")
        if not re.fullmatch("[A-Za-z]+", name) or name == "auth" or not re.fullmatch(r"[\x21-\x7e \t]+", value):
            raise _bad(_OAUTH + "extensions", "must be name=value, several with commas; names are letters, not auth")
        extensions[name] = value
    return Oidc(
        url=properties[_OAUTH + "token.endpoint.url"],
        client_id=properties[_OAUTH + "client.id"],
        client_secret=properties[_OAUTH + "client.secret"],
        scope=properties.get(_OAUTH + "scope", ""),
        extensions=tuple(extensions.items()),
        ca=properties.get("https.ca.location"),
    )


def _msk_iam(cluster: ClusterConfig) -> TokenSettings:
    """Raises ExtraMissing if AWS's signer isn't installed."""
    from drkit.config.extras import Extra, require  # noqa: PLC0415 - see above
    from drkit.kafka.config.oauth_tokens import MskIam, region_of  # noqa: PLC0415 - see above

    require(Extra.MSK, f"sasl.mechanisms {MSK_IAM}")
    return MskIam(region_of(cluster.bootstrap_servers))


def _librdkafka_tokens(settings: TokenSettings) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    from drkit.kafka.config.oauth_tokens import librdkafka_token  # noqa: PLC0415 - see above

    return lambda _: librdkafka_token(settings)


def _sasl(cluster: ClusterConfig, properties: Mapping[str, str], *, aiokafka: bool) -> dict[str, Any]:
    """kafka-python and aiokafka name these alike."""
    mechanism = properties["sasl.mechanisms"]
    if mechanism in {OAUTHBEARER, MSK_IAM}:
        from drkit.kafka.config.oauth_tokens import (  # noqa: PLC0415 - see above
            AiokafkaTokens,
            KafkaPythonTokens,
        )

        settings = _oidc(properties) if mechanism == OAUTHBEARER else _msk_iam(cluster)
        provider = AiokafkaTokens(settings) if aiokafka else KafkaPythonTokens(settings)
        return {"sasl_mechanism": OAUTHBEARER, "sasl_oauth_token_provider": provider}
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties["sasl.username"],
        "sasl_plain_password": properties["sasl.password"],
    }


def _check_ssl(properties: dict[str, str], *, used: bool) -> None:
    names = [name for name in properties if name.startswith("ssl.") or name == "enable.ssl.certificate.verification"]
    if names and not used:
        raise _bad(names[0], "is given, but security.protocol is not SSL or SASL_SSL")
    if "ssl.ca.location" in properties and not Path(properties["ssl.ca.location"]).is_file():
        raise _bad("ssl.ca.location", "must be a PEM file that can be read")
    if ("ssl.certificate.location" in properties) != ("ssl.key.location" in properties):
        raise _bad("ssl.certificate.location", "and ssl.key.location go together")
    algorithm = properties.get("ssl.endpoint.identification.algorithm")
    if algorithm is not None and algorithm not in {"https", "none"}:
        raise _bad("ssl.endpoint.identification.algorithm", "must be https or none")
    if properties.get("enable.ssl.certificate.verification", "true") not in {"true", "false"}:
        raise _bad("enable.ssl.certificate.verification", "must be true or false")


def _timeout_ms(properties: Mapping[str, str]) -> int | None:
    """The other clients' request timeout is librdkafka's socket timeout."""
    value = properties.get("socket.timeout.ms", properties.get("request.timeout.ms"))
    return None if value is None else int(value)


def _checks_hostname(properties: Mapping[str, str]) -> bool:
    return properties.get("ssl.endpoint.identification.algorithm", "https") == "https"


def _ssl_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    authority = properties.get("ssl.ca.location")
    try:
        context = ssl.create_default_context(cafile=authority)
    except (OSError, ValueError) as error:
        raise _bad("ssl.ca.location", f"can't be used: {authority} holds no certificate: {_reason(error)}") from error
    if "ssl.certificate.location" in properties:
        _load_own_certificate(context, properties)
    context.check_hostname = _checks_hostname(properties)
    if properties.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_own_certificate(context: ssl.SSLContext, properties: Mapping[str, str]) -> None:
    certificate, key = properties["ssl.certificate.location"], properties["ssl.key.location"]
    for name, path in (("ssl.certificate.location", certificate), ("ssl.key.location", key)):
        try:
            Path(path).open("rb").close()
        except (OSError, ValueError) as error:
            raise _bad(name, f"can't be read: {error}") from error
    try:
        # "" rather than None: None would ask on the terminal
        context.load_cert_chain(certificate, key, properties.get("ssl.key.password", ""))
    except (OSError, ValueError) as error:
        why = _reason(error)
        if "mismatch" in why:
            raise _bad("ssl.key.location", f"can't be used: {key} is not the key of {certificate}") from error
        if "ENCRYPTED" in Path(key).read_text(errors="replace"):
            raise _bad("ssl.key.password", f"can't be used: it doesn't open {key}") from error
        raise _bad(
            "ssl.certificate.location",
            f"and ssl.key.location can't be used: {certificate} or {key} is no PEM file of its kind: {why}",
        ) from error


def _reason(error: Exception) -> str:
    """Why OpenSSL refuses a file, without the location in OpenSSL's source."""
    given = str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
    return re.sub(r"\s*\(_ssl\.c:\d+\)", "", given).replace("_", " ").lower()


def _java_oauth(oidc: Oidc) -> dict[str, str]:
    """Java's client asks the token endpoint itself, with credentials from the JAAS options."""
    options = {"clientId": oidc.client_id, "clientSecret": oidc.client_secret}
    if oidc.scope:
        options["scope"] = oidc.scope
    options |= {f"extension_{name}": value for name, value in oidc.extensions}
    if oidc.ca is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _content("https.ca.location", oidc.ca)}
    return {
        "sasl.login.callback.handler.class": _OAUTH_LOGIN,
        "sasl.oauthbearer.token.endpoint.url": oidc.url,
        "sasl.jaas.config": _jaas(_OAUTH_MODULE, options),
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    return f"{module} required " + " ".join(f"{name}={_jaas_quoted(value)}" for name, value in options.items()) + ";"


def _java_ssl(properties: Mapping[str, str]) -> dict[str, str]:
    if properties.get("enable.ssl.certificate.verification") == "false":
        raise _bad(
            "enable.ssl.certificate.verification", "can't be false for Java clients (Kafka's own tools); give a CA"
        )
    java = {"ssl.endpoint.identification.algorithm": "https" if _checks_hostname(properties) else ""}
    if "ssl.ca.location" in properties:
        java["ssl.truststore.type"] = "PEM"
        java["ssl.truststore.certificates"] = _pem("ssl.ca.location", properties)
    if "ssl.certificate.location" in properties:
        key = _pem("ssl.key.location", properties)
        if "BEGIN PRIVATE KEY" not in key and "BEGIN ENCRYPTED PRIVATE KEY" not in key:
            raise _bad(
                "ssl.key.location", "must be a PKCS #8 key for Java clients; convert it with openssl pkcs8 -topk8"
            )
        if _locked_by_pbes2(key):
            raise _bad(
                "ssl.key.location",
                "is locked by PBES2, which Java clients (Kafka's own tools) can't open on Java 17; lock it "
                "with openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES, or keep it unlocked where only drkit can read it",
            )
        java["ssl.keystore.type"] = "PEM"
        java["ssl.keystore.certificate.chain"] = _pem("ssl.certificate.location", properties)
        java["ssl.keystore.key"] = key
        if "ssl.key.password" in properties:
            java["ssl.key.password"] = properties["ssl.key.password"]
    return java


def _locked_by_pbes2(key: str) -> bool:
    """Whether a PKCS #8 key is encrypted as openssl does it by default (object identifier 1.2.840.113549.1.5.13)."""
    _, _, rest = key.partition("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    try:
        der = base64.b64decode(rest.partition("-----END")[0])
    except binascii.Error as error:
        raise _bad("ssl.key.location", f"can't be read as PEM: {error}") from error
    return bytes.fromhex("06092a864886f70d01050d") in der[:32]


def _pem(name: str, properties: Mapping[str, str]) -> str:
    return _content(name, properties[name])


def _content(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(name, f"can't be read as PEM: {error}") from error


def _jaas_quoted(value: str) -> str:
    """A JAAS string: Java reads it with StreamTokenizer, which ends it at a bare quote or line end."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def _escaped(text: str, *, key: bool) -> str:
    """Escape for `java.util.Properties.load`: ISO-8859-1, backslashes, separators and leading blanks."""
    special = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    if key:
        special |= {" ": "\\ ", ":": "\\:", "=": "\\=", "#": "\\#", "!": "\\!"}
    out = []
    for position, char in enumerate(text):
        if char in special:
            out.append(special[char])
        elif position == 0 and char == " ":
            out.append("\\ ")
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be")
            out.extend(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
    return "".join(out)


def _bad(name: str, expected: str) -> ConfigError:
    return ConfigError(f"client property {name} {expected}", remedy="Correct the cluster's [clusters.….client] table")


client_log = logging.getLogger("drkit.librdkafka")


_FILE = ".location"
"""Suffixes of property names whose values are paths."""

_MEMORY = hasattr(os, "memfd_create")
_OPENED = "/proc/self/fd"


def packed(alias: str, cluster: ClusterConfig) -> dict[str, Any]:
    """A cluster's address, properties and files, as JSON can hold them. It holds secrets.

    Raises:
        ConfigError: a secret or a file can't be read.
    """
    try:
        properties = cluster.properties()
    except ValueError as error:
        raise ConfigError(
            f"a client property of {alias} can't be read: {error}", remedy="Set the variable or correct the file"
        ) from None
    files = {name: _text(alias, name, path) for name, path in properties.items() if name.endswith(_FILE)}
    client = {name: value for name, value in properties.items() if name not in files}
    return {"alias": alias, "bootstrap_servers": cluster.bootstrap_servers, "client": client, "files": files}


@contextmanager
def unpacked(shipped: Mapping[str, Any]) -> Iterator[ClusterConfig]:
    """The cluster from `packed`'s result; its files exist until the end of the block, for this process only."""
    files = shipped.get("files", {})
    with ExitStack() as stack:
        made = _in_memory if _MEMORY and Path(_OPENED).is_dir() else _in_folder
        client = {**shipped["client"], **made(stack, files)}
        yield ClusterConfig.model_validate({"bootstrap_servers": shipped["bootstrap_servers"], "client": client})


def _in_memory(stack: ExitStack, files: Mapping[str, str]) -> dict[str, str]:
    """Paths of files that are in memory: each time one is opened, it is read from its beginning."""
    paths = {}
    for name, text in files.items():
        opened = os.memfd_create("drkit-file", os.MFD_CLOEXEC)
        file = stack.enter_context(os.fdopen(opened, "w", encoding="utf-8"))
        os.fchmod(opened, 0o600)
        file.write(text)
        file.flush()
        paths[name] = f"{_OPENED}/{opened}"
    return paths


def _in_folder(stack: ExitStack, files: Mapping[str, str]) -> dict[str, str]:
    """Paths of files in a folder of their own."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drkit-files-")))  # made with 0700
    paths = {}
    for number, (name, text) in enumerate(files.items()):
        path = folder / f"{number}.pem"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        paths[name] = str(path)
    return paths


def _text(alias: str, name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"client property {name} of {alias}: {path} can't be read as PEM: {error}",
            remedy=f"Correct [clusters.{alias}.client], or make the file readable for drkit",
        ) from None
