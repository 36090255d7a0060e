"""DNS by dynamic update (RFC 2136), signed with TSIG: what ordinary clients can resolve.

Of an entry named `kafka` in `example.com`:

    _drkit.kafka.example.com       TXT    the entry itself: "v=drkit1" "epoch=7" "active=dr" "server=h1:9092" …
    _kafka._tcp.kafka.example.com  SRV    a host and port for each bootstrap server that has a name
    kafka.example.com              CNAME  the first bootstrap server, where it has a name; else
                                   A/AAAA the addresses of all

All of it changes in one update, on the condition (RFC 2136, 2.4.2 and 2.4.3) that the TXT record is still
the one that was read: the server applies all of it or nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import datetime
from ipaddress import IPv4Address, ip_address

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.query
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rdtypes.ANY.TXT
import dns.tsig
import dns.update

from drkit.directory.api import Entry, contended, must_write, not_ours
from drkit.model.clock import Deadline, bounded, iso
from drkit.model.errors import DrkitError, Unreachable

_VERSION = "drkit1"
_ATTEMPTS = 5
_MOVED = frozenset({dns.rcode.YXRRSET, dns.rcode.NXRRSET, dns.rcode.YXDOMAIN, dns.rcode.NXDOMAIN})
_ADDRESSES = ("CNAME", "A", "AAAA")


def tsig_key(name: str, secret: str, algorithm: str) -> dns.tsig.Key:
    """A key by its name, its secret in base64 and its algorithm.

    Raises:
        ValueError: the name or the secret isn't one.
    """
    try:
        return dns.tsig.Key(name, secret, f"{algorithm}.")
    except dns.exception.DNSException as error:
        raise ValueError(str(error) or type(error).__name__) from None


class DnsDirectory:
    """The entry as records of one name.

    Args:
        url: its name in messages.
        server: host of the zone's primary server.
        port: its port, by TCP.
        zone: the zone's name.
        entry: the name within the zone.
        ttl: seconds that resolvers may keep the records.
        timeout_seconds: for all exchanges of a read or publish.
        key: signs every request; None: unsigned.
    """

    def __init__(
        self,
        url: str,
        server: str,
        port: int,
        zone: str,
        entry: str,
        ttl: int,
        timeout_seconds: float,
        key: dns.tsig.Key | None,
    ) -> None:
        self._url = url
        self._server = server
        self._port = port
        self._zone = dns.name.from_text(zone)
        self._name = dns.name.from_text(entry, self._zone)
        self._note = dns.name.from_text("_drkit", self._name)
        self._service = dns.name.from_text("_kafka._tcp", self._name)
        self._ttl = ttl
        self._timeout_seconds = timeout_seconds
        self._key = key

    @property
    def name(self) -> str:
        """Its URL."""
        return self._url

    @property
    def confirms(self) -> bool:
        """It always returns an existing entry."""
        return True

    def read(self) -> Entry | None:
        """The server's own entry, never a cached one."""
        note = self._kept(Deadline.after(self._timeout_seconds))
        return None if note is None else self._entry(note)

    def publish(self, entry: Entry) -> bool:
        """One conditional update."""
        deadline = Deadline.after(self._timeout_seconds)
        for _ in range(_ATTEMPTS):
            note = self._kept(deadline)
            if not must_write(None if note is None else self._entry(note), entry, self.name):
                return False
            answer = self._ask(self._update(entry, note), deadline)
            if answer.rcode() == dns.rcode.NOERROR:
                return True
            if answer.rcode() not in _MOVED:
                raise self._refused(answer, "Let its update-policy (or allow-update) take updates by this key")
        raise contended(self.name)

    # -- writing -----------------------------------------------------------------------------------

    def _update(self, entry: Entry, note: dns.rdata.Rdata | None) -> dns.update.UpdateMessage:
        update = dns.update.UpdateMessage(self._zone)
        if note is None:
            update.absent(self._note, "TXT")
        else:
            update.present(self._note, note)
        update.delete(self._note, "TXT")
        update.add(self._note, self._ttl, _note_of(entry))
        update.delete(self._service, "SRV")
        for record in _services(entry):
            update.add(self._service, self._ttl, "SRV", record)
        for kind in _ADDRESSES:
            update.delete(self._name, kind)
        for kind, target in _addresses(entry):
            update.add(self._name, self._ttl, kind, target)
        return update

    # -- reading -----------------------------------------------------------------------------------

    def _kept(self, deadline: Deadline) -> dns.rdata.Rdata | None:
        """The TXT record of the entry; None: there is none."""
        query = dns.message.make_query(self._note, "TXT", flags=0)
        answer = self._ask(query, deadline)
        if answer.rcode() not in {dns.rcode.NOERROR, dns.rcode.NXDOMAIN}:
            raise self._refused(answer, "Let it answer queries of this machine")
        if not answer.flags & dns.flags.AA:
            raise DrkitError(
                f"{self.name}: that server is not an authority for {self._zone}",
                meaning="A resolver's records may be old, and it takes no updates",
                remedy="Name the zone's primary server",
            )
        found = answer.get_rrset(answer.answer, self._note, dns.rdataclass.IN, dns.rdatatype.TXT)
        if found is None:
            return None
        if len(found) != 1:
            raise not_ours(self.name, f"{len(found)} TXT records at {self._note}")
        kept: dns.rdata.Rdata = next(iter(found))
        return kept

    def _entry(self, note: dns.rdata.Rdata) -> Entry:
        if not isinstance(note, dns.rdtypes.ANY.TXT.TXT):
            raise not_ours(self.name, f"the TXT record at {self._note} is {note}")
        pairs = [text.decode(errors="replace").partition("=") for text in note.strings]
        values = {key: value for key, _, value in pairs}
        if values.get("v") != _VERSION:
            raise not_ours(self.name, f"the TXT record at {self._note} is {note}")
        try:
            return Entry(
                link=values["link"],
                active=values["active"],
                bootstrap_servers=",".join(value for key, _, value in pairs if key == "server"),
                epoch=int(values["epoch"]),
                run=values["run"],
                at=datetime.fromisoformat(values["at"]),
            )
        except (KeyError, ValueError) as error:
            raise not_ours(self.name, f"the TXT record at {self._note}: {error}") from None

    # -- requests ----------------------------------------------------------------------------------

    def _ask(self, message: dns.message.Message, deadline: Deadline) -> dns.message.Message:
        if self._key is not None:
            message.use_tsig(self._key)
        try:
            address = bounded(deadline, self._address, "dns")
            answer = dns.query.tcp(message, address, timeout=deadline.left, port=self._port)
        except (dns.exception.Timeout, TimeoutError) as error:
            raise self._silent(f"within {self._timeout_seconds:g} s") from error
        except (OSError, EOFError) as error:
            raise self._silent(f"({error or type(error).__name__})") from error
        except dns.exception.DNSException as error:
            raise DrkitError(
                f"{self.name} sent an unusable response: {error or type(error).__name__}",
                remedy="Check the key's name, secret and algorithm, and both clocks",
            ) from error
        if self._key is not None and not answer.had_tsig:
            raise self._refused(answer, "Its answer is not signed: check that it knows this key")
        return answer

    def _address(self) -> str:
        return str(socket.getaddrinfo(self._server, self._port, type=socket.SOCK_STREAM)[0][4][0])

    def _silent(self, how: str) -> Unreachable:
        return Unreachable(
            f"{self.name} does not answer {how}",
            remedy=f"Check that {self._server}:{self._port} answers by TCP",
        )

    def _refused(self, answer: dns.message.Message, remedy: str) -> DrkitError:
        return DrkitError(f"{self.name} answered {dns.rcode.to_text(answer.rcode())}", remedy=remedy)


def _note_of(entry: Entry) -> dns.rdata.Rdata:
    texts = {
        "v": _VERSION,
        "epoch": str(entry.epoch),
        "active": entry.active,
        "link": entry.link,
        "run": entry.run,
        "at": str(iso(entry.at)),
    }
    strings = [f"{key}={value}" for key, value in texts.items()]
    strings += [f"server={server.strip()}" for server in entry.bootstrap_servers.split(",")]
    return dns.rdtypes.ANY.TXT.TXT(dns.rdataclass.IN, dns.rdatatype.TXT, [text.encode() for text in strings])


def _services(entry: Entry) -> Iterator[str]:
    """`priority weight port host` of each server that has a name: a SRV record can't hold an address."""
    for host, port in entry.servers:
        if not _is_address(host):
            yield f"0 0 {port} {host.rstrip('.')}."


def _addresses(entry: Entry) -> Iterator[tuple[str, str]]:
    """Record type and target of the entry's own name."""
    named = [host for host, _ in entry.servers if not _is_address(host)]
    if named:
        yield "CNAME", f"{named[0].rstrip('.')}."
        return
    for host in dict.fromkeys(host for host, _ in entry.servers):
        yield ("A" if isinstance(ip_address(host), IPv4Address) else "AAAA"), host


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
