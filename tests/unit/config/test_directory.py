"""`[[directory]]` and `[hooks]`: what can be configured, and what is refused with what to do."""

import pytest

from drkit.config import load_config
from drkit.config.schema.directory import parse_address
from drkit.model.errors import ConfigError
from drkit.model.topology import LinkId

BASE = """
[clusters.primary]
bootstrap_servers = "p:1"
[clusters.dr]
bootstrap_servers = "d:1"
[clusters.third]
bootstrap_servers = "t:1"
[[links]]
source = "primary"
target = "dr"
topics = ["a"]
"""
SECOND = '[[links]]\nsource = "third"\ntarget = "dr"\ntopics = ["b"]\n'


def load(tmp_path, text):
    path = tmp_path / "drkit.toml"
    path.write_text(BASE + text)
    return load_config(path)


def test_one_table_or_several_each_for_its_link(tmp_path, monkeypatch):
    monkeypatch.setenv("CONSUL_TOKEN", "hush-hush")
    one = load(tmp_path, '[directory]\nurl = "file:///etc/drkit/active.json"')
    assert [each.name for each in one.directories(LinkId("primary", "dr"))] == ["file:///etc/drkit/active.json"]
    several = load(
        tmp_path,
        SECOND + '[[directory]]\nurl = "file:///a"\nlink = "primary->dr"\n'
        '[[directory]]\nurl = "consul+https://c:8501/k"\ntoken = { env = "CONSUL_TOKEN" }\nlink = "third->dr"\n'
        '[[directory]]\ncommand = ["/bin/true", "x"]\nlink = "third->dr"\n'
        '[hooks]\npre_failover = [["/bin/echo", "now"]]\n',
    )
    named = [each.name for each in several.directories(LinkId("third", "dr"))]
    assert named == ["consul+https://c:8501/k", "command /bin/true"]
    assert several.hooks.pre_failover == (("/bin/echo", "now"),)
    assert "hush-hush" not in repr(several)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("dns://10.0.0.53/example.com/kafka", ("dns", "10.0.0.53", 53, "example.com/kafka", False)),
        ("dns://[2001:db8::1]:5353/example.com/a.b", ("dns", "2001:db8::1", 5353, "example.com/a.b", False)),
        ("consul+https://c/a/b", ("consul", "c", 8500, "a/b", True)),
        ("etcd://e:1/a%20b", ("etcd", "e", 1, "a b", False)),
        ("file:///var/lib/x.json", ("file", "", 0, "/var/lib/x.json", False)),
    ],
)
def test_addresses(url, expected):
    assert parse_address(url) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('url = "http://x/y"', "'http' is not a kind of directory; known are: file:///path"),
        ('url = "file://relative/x"', "not an absolute path"),
        ('url = "dns://ns/example.com"', "names no zone and name"),
        ('url = "dns://ns/example.com/a b"', "names no zone and name"),
        ('url = "etcd://host"', "names no entry"),
        ('url = "etcd://user:pw@host/x"', "holds no user or password"),
        ('url = "consul://host:99999/x"', "is not a URL"),
        ('url = "file:///x"\ncommand = ["y"]', "either a `url` or a `command`"),
        ("ttl = 5", "either a `url` or a `command`"),
        ('url = "file:///x"\ntoken = "t"', "token has no meaning for a file directory"),
        ('url = "dns://ns/z/n"\ntsig_name = "k"', "tsig_name and tsig_secret belong together"),
        ('url = "dns://ns/z/n"\ntsig_name = "k"\ntsig_secret = "hush!"', "tsig_secret is not base64"),
        ('url = "dns://ns/z/n"\ntsig_algorithm = "md5"', "'md5' is not known"),
        ('url = "consul://h/x"\ntoken = { env = "NOT_SET_ANYWHERE" }', "directory.0.token: environment variable"),
        ('url = "file:///x"\nlink = "dr->primary"', "no link 'dr->primary' is configured"),
        ('url = "file:///x"\ncolour = 1', "directory.0.colour: unknown key"),
        ('url = "file:///x"\n[[directory]]\nurl = "file:///x"', "is there twice"),
        ('url = "file:///x"\n[hooks]\npre_failover = [[]]', "a hook is a list that begins with a program"),
        ('url = "file:///x"\n[hooks]\naudit_alert = [[""]]', "a hook is a list that begins with a program"),
        ('url = "file:///x"\n[hooks]\naudit_alert_url = "ftp://hush!/x"', "a webhook is a URL of the form https://"),
        ('url = "file:///x"\n[hooks]\naudit_alert_url = "https://a:hush!@h/x"', "holds no user or password"),
        ('url = "file:///x"\n[hooks]\naudit_alert_url = { env = "NOT_SET" }', "hooks.audit_alert_url: environment"),
    ],
)
def test_what_is_refused_names_the_key(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"[[directory]]\n{text}")
    assert words in str(caught.value)
    assert "hush!" not in str(caught.value)


def test_with_several_links_a_directory_says_whose_entry_it_holds(tmp_path):
    with pytest.raises(ConfigError, match=r"directory\.0\.link: name the link"):
        load(tmp_path, SECOND + '[directory]\nurl = "file:///x"')
