"""Store URLs of Cassandra: what they say, and that a wrong one is told without its password."""

from __future__ import annotations

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from drkit.model.errors import ConfigError, ExitCode
from drkit.store.cassandra.url import CassandraLocation, CassandraTls, parse_cassandra_url, tls_context


def test_the_whole_of_it():
    found = parse_cassandra_url(
        "cassandra://drkit:p%40ss%2Fword@h1,h2:9142/estate_1?dc=dr&replication=dr:3,primary:2"
        "&consistency=quorum&serial_consistency=SERIAL&timeout=2.5"
    )
    assert found == CassandraLocation(
        (("h1", 9142), ("h2", 9142)),
        "estate_1",
        "dr",
        "drkit",
        "p@ss/word",
        (("dr", 3), ("primary", 2)),
        "QUORUM",
        "SERIAL",
        2.5,
    )


def test_the_least_of_it():
    found = parse_cassandra_url("cassandra://h1/drkit?dc=dc1")
    assert found == CassandraLocation((("h1", 9042),), "drkit", "dc1")
    assert (found.consistency, found.serial_consistency, found.timeout_seconds) == ("LOCAL_QUORUM", "LOCAL_SERIAL", 10)
    assert found.user is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", None),
        ("&tls=false", None),
        ("&tls=true", CassandraTls()),
        ("&ca=%2Fetc%2Fdr%20kit%2Fca.pem", CassandraTls("/etc/dr kit/ca.pem")),
        ("&certificate=c.pem&key=c.key&verify_host=false", CassandraTls(None, "c.pem", "c.key", False)),
    ],
)
def test_tls_is_asked_for_by_any_of_its_parameters(query, expected):
    assert parse_cassandra_url(f"cassandra://h1/drkit?dc=dr{query}").tls == expected


def test_files_of_tls_that_can_not_be_used_are_named(tmp_path):
    empty, ca, other = tmp_path / "empty.pem", tmp_path / "ca.pem", tmp_path / "other.pem"
    empty.write_text("")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(ca))
    mine, theirs = authority.issue_cert("a.example"), authority.issue_cert("b.example")
    certificate, key, locked = tmp_path / "c.pem", tmp_path / "c.key", tmp_path / "locked.key"
    certificate.write_bytes(mine.cert_chain_pems[0].bytes())
    key.write_bytes(mine.private_key_pem.bytes())
    other.write_bytes(theirs.private_key_pem.bytes())
    loaded = load_pem_private_key(key.read_bytes(), None)
    lock = BestAvailableEncryption(b"sesame")
    locked.write_bytes(loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    assert tls_context(CassandraTls(str(ca), str(certificate), str(key))).check_hostname
    for tls, word in (
        (CassandraTls(str(tmp_path / "none.pem")), "ca="),
        (CassandraTls(str(empty)), "holds no certificate"),
        (CassandraTls(str(ca), str(certificate), str(tmp_path / "none.key")), "key="),
        (CassandraTls(str(ca), str(certificate), str(other)), "don't match"),
        (CassandraTls(str(ca), str(certificate), str(empty)), "don't match"),
        (CassandraTls(str(ca), str(certificate), str(locked)), "is protected by a password"),
    ):
        with pytest.raises(ConfigError) as raised:
            tls_context(tls)
        assert word in raised.value.what
        assert "store.url" in raised.value.what
        assert raised.value.remedy


def test_a_replication_factor_is_the_local_data_centres():
    assert parse_cassandra_url("cassandra://h1/drkit?dc=dr&replication_factor=3").replication == (("dr", 3),)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("h1:1,h2:2", (("h1", 1), ("h2", 2))),
        ("[::1]", (("::1", 9042),)),
        ("[fe80::1]:99,h2", (("fe80::1", 99), ("h2", 99))),
        ("10.0.0.1, 10.0.0.2", (("10.0.0.1", 9042), ("10.0.0.2", 9042))),
    ],
)
def test_hosts(hosts, expected):
    assert parse_cassandra_url(f"cassandra://{hosts}/drkit?dc=dr").contact_points == expected


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("cassandra://h1/drkit", "no data centre"),
        ("cassandra://h1/drkit?dc=a'b", "no data centre"),
        ("cassandra://h1?dc=dr", "names no keyspace"),
        ("cassandra://h1/?dc=dr", "names no keyspace"),
        ("cassandra://h1/Drkit?dc=dr", "'Drkit' is not a keyspace name"),
        ("cassandra://h1/a;drop?dc=dr", "not a keyspace name"),
        (f"cassandra://h1/{'k' * 49}?dc=dr", "not a keyspace name"),
        ("cassandra:///drkit?dc=dr", "a host is missing"),
        ("cassandra://h1,,h2/drkit?dc=dr", "a host is missing"),
        ("cassandra://h1:x/drkit?dc=dr", "'h1' is not host:port"),
        ("cassandra://h1:1,h2:2,h3/drkit?dc=dr", "some hosts have a port"),
        ("cassandra://user@h1/drkit?dc=dr", "not user:password"),
        ("cassandra://h1/drkit?dc=dr&replication_facter=3", "unknown parameter 'replication_facter'"),
        ("cassandra://h1/drkit?dc=dr&dc=primary", "'dc' is given twice"),
        ("cassandra://h1/drkit?dc=dr&replication_factor=0", "replication_factor: '0'"),
        ("cassandra://h1/drkit?dc=dr&replication_factor=three", "replication_factor: 'three'"),
        ("cassandra://h1/drkit?dc=dr&replication_factor=3&replication=dr:3", "both"),
        ("cassandra://h1/drkit?dc=dr&replication=primary:3", "no replicas in dc=dr"),
        ("cassandra://h1/drkit?dc=dr&replication=dr", "replication: ''"),
        ("cassandra://h1/drkit?dc=dr&replication=:3", "not dc:replicas"),
        ("cassandra://h1/drkit?dc=dr&consistency=ONE", "consistency=ONE"),
        ("cassandra://h1/drkit?dc=dr&consistency=LOCAL_SERIAL", "consistency=LOCAL_SERIAL"),
        ("cassandra://h1/drkit?dc=dr&serial_consistency=QUORUM", "serial_consistency=QUORUM"),
        ("cassandra://h1/drkit?dc=dr&timeout=0", "timeout='0'"),
        ("cassandra://h1/drkit?dc=dr&timeout=soon", "timeout='soon'"),
        ("cassandra://h1/drkit?dc=dr&timeout=inf", "timeout='inf'"),
        ("cassandra://h1/drkit?dc=dr&timeout=nan", "timeout='nan'"),
        ("cassandra://h1/drkit?dc=dr&tls=yes", "tls='yes' is neither true nor false"),
        ("cassandra://h1/drkit?dc=dr&tls=false&ca=/ca.pem", "ca is given, and tls=false"),
        ("cassandra://h1/drkit?dc=dr&ca=", "ca names no file"),
        ("cassandra://h1/drkit?dc=dr&certificate=/c.pem", "certificate and key go together"),
        ("cassandra://h1/drkit?dc=dr&key=/c.key", "certificate and key go together"),
        ("cassandra://h1/drkit?dc=dr&verify_host=1", "verify_host='1' is neither"),
    ],
)
def test_what_is_wrong_is_said(url, word):
    with pytest.raises(ConfigError) as raised:
        parse_cassandra_url(url)
    assert word in raised.value.what
    assert raised.value.remedy
    assert raised.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("hosts", ["h1:x", "", "h1,,h2"])
def test_no_error_and_no_text_of_a_location_shows_the_password(hosts):
    with pytest.raises(ConfigError) as raised:
        parse_cassandra_url(f"cassandra://drkit:s3cret@{hosts}/drkit?dc=dr")
    assert "s3cret" not in f"{raised.value!s}{raised.value!r}"
    location = parse_cassandra_url("cassandra://drkit:s3cret@h1/drkit?dc=dr")
    assert "s3cret" not in f"{location!s}{location!r}"
    assert str(location) == "cassandra h1:9042 keyspace drkit"


@pytest.mark.parametrize("password", ["s3cret/half", "s3cret?half", "s3cret:half@rest", "s3cret@"])
@pytest.mark.parametrize("rest", ["@h1/drkit?dc=dr", "/drkit?dc=dr", ""])
def test_a_password_that_was_not_encoded_is_not_shown_either(password, rest):
    """It ends up in what is taken for hosts, keyspace or parameters."""
    try:
        found = str(parse_cassandra_url(f"cassandra://drkit:{password}{rest}"))
    except ConfigError as error:
        found = str(error)
    assert "s3cret" not in found
    assert "half" not in found
