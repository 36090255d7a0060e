"""Opens the configured directories."""

from __future__ import annotations

from pathlib import Path

from drkit.config import Config
from drkit.config.schema.base import Secret, reveal
from drkit.config.schema.directory import DirectoryConfig, parse_address
from drkit.directory.api import Directory
from drkit.directory.command import CommandDirectory
from drkit.directory.file import FileDirectory
from drkit.directory.http import HttpServer
from drkit.directory.key_value import ConsulDirectory, EtcdDirectory
from drkit.model.errors import ConfigError
from drkit.model.topology import LinkId


def open_directories(config: Config, link: LinkId) -> tuple[Directory, ...]:
    """The directories of a link, in the configuration's order. Sends no request."""
    return tuple(_open(each, link) for each in config.directories(link))


def _open(config: DirectoryConfig, link: LinkId) -> Directory:
    if config.url is None:
        return CommandDirectory(config.command or (), str(link), config.timeout_seconds)
    address = parse_address(config.url)
    if address.kind == "file":
        return FileDirectory(Path(address.path), config.timeout_seconds)
    if address.kind == "dns":
        return _dns(config)
    headers = {}
    if config.token is not None:
        headers["X-Consul-Token"] = reveal(config.token)
    server = HttpServer(
        config.url, address.host, address.port, address.tls, config.timeout_seconds, config.ca_file, headers
    )
    if address.kind == "consul":
        return ConsulDirectory(server, address.path)
    return EtcdDirectory(server, address.path, config.user, _plain(config.password))


def _dns(config: DirectoryConfig) -> Directory:
    from drkit.directory.dns import DnsDirectory, tsig_key  # noqa: PLC0415 - dnspython loads only where it is used

    address = parse_address(config.url or "")
    key = None
    if config.tsig_name is not None and config.tsig_secret is not None:
        try:
            key = tsig_key(config.tsig_name, reveal(config.tsig_secret), config.tsig_algorithm)
        except ValueError as error:
            raise ConfigError(
                f"the TSIG key of {config.name} can't be used: {error}", remedy="Correct tsig_name and tsig_secret"
            ) from None
    zone, name = address.path.split("/")
    return DnsDirectory(config.name, address.host, address.port, zone, name, config.ttl, config.timeout_seconds, key)


def _plain(secret: Secret | None) -> str | None:
    return None if secret is None else reveal(secret)
