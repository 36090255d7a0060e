"""ACLs of a link, and a note about each, so that the switch doesn't need the source.

A note is kept for every ACL that drkit has put on the target or will put there at the switch:

| role | the ACL |
|---|---|
| `on` | drkit put it on the target; it stays at the switch |
| `due` | is added at the switch: it lets somebody write |
| `until_switch` | is on the target while it is a standby, in place of a `due` one that grants more |

ACLs that were on the target before drkit have no note and are never removed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from enum import StrEnum

ACL_NOTES = "acl"
"""Kind of the notes: by the rule's `key`, the role."""


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One ACL. Kafka's words in lower case: `resource` topic or group, `pattern` literal or prefixed,
    `operation` read, write, all …, `permission` allow or deny. The literal name ``*`` means all.
    """

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    @property
    def key(self) -> str:
        """A text that identifies the ACL."""
        return json.dumps(astuple(self), ensure_ascii=False)

    @classmethod
    def parse(cls, key: str) -> Acl:
        """The ACL of a `key`."""
        return cls(*json.loads(key))

    def __str__(self) -> str:
        where = self.name if self.pattern == "literal" else f"{self.name}…"
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{host} to {self.operation} {self.resource} {where}"


def fence_rules_kind(cluster: str) -> str:
    """Kind of the notes that hold the ACLs by which drkit keeps clients out of a cluster: by `key`, the epoch."""
    return f"fence_rules {cluster}"


def others_rules_kind(cluster: str) -> str:
    """Kind of the notes that hold other people's ACLs that already closed a topic or group when drkit fenced the
    cluster.

    They stay when the fence is lifted. By `key`, the epoch.
    """
    return f"fence_others {cluster}"


def topics_denied(keys: Iterable[str]) -> frozenset[str]:
    """The topics that the ACLs with these keys keep everybody from writing to."""
    rules = map(Acl.parse, keys)
    return frozenset(
        rule.name
        for rule in rules
        if (rule.resource, rule.principal, rule.operation, rule.permission) == ("topic", "User:*", "write", "deny")
    )


class AclRole(StrEnum):
    """See the module docstring."""

    ON = "on"
    DUE = "due"
    UNTIL_SWITCH = "until_switch"
