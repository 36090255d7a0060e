"""docs/permissions.md, from the table: `python -m tools.manual.permissions_page > docs/permissions.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from drkit.permissions.table import PARTS, TABLE, Command, Need, Side

_HEAD = """# What drkit must be allowed

Generated from one table (`drkit/permissions/table.py`), which `drkit acls` prints for your configuration and the plans
of failover and failback are compared with; a test keeps this page current, and another one runs the commands as a
principal that has exactly these rights.

```console
$ drkit acls --format kafka-acls --command failover --cluster primary
# admin-primary.properties: client properties of somebody who may alter the rules of primary

# cluster primary, principal User:drkit
kafka-acls.sh --bootstrap-server primary-1:9092 --command-config admin-primary.properties \\
  --add --allow-principal User:drkit --operation Alter --cluster
…
```

## Printing them

`drkit acls` reads the configuration and connects to nothing. For each cluster and principal it prints the least rights
that the commands need: as a table, as `kafka-acls.sh` commands (`--format kafka-acls`), or as Strimzi's KafkaUser
(`--format strimzi`); `--output json` has all of it ([schemas/acls.schema.json](schemas/acls.schema.json)).

| option | |
|---|---|
| `--link L` | these links only, by name or regular expression; repeat it |
| `--command C` | these commands only; repeat it. Default: all |
| `--cluster C` | these clusters only; repeat it |
| `--principal P` | instead of the user of each cluster's client settings. Where these don't tell it (certificates, \
OAuth) a placeholder is printed, and said to be one |
| `--required` | leave out rights without which the commands work, at a cost |
| `--replay-to TOPIC` | also what `drkit salvage --replay-to` needs |
| `--verbose` | what each right is for, and what happens without it |

- ACLs know names and prefixes. `orders[.].*` is the prefix `orders.`, `flights|orders[.](eu|us)` are three
  names; a pattern that is neither is widened to what all its names begin with, and a note says so. What
  `exclude_topics` and `exclude_groups` leave out can't be said either.
- A right that another one includes isn't printed: who may read, write, delete or alter something may describe it, who
  may alter settings may describe them.
- Super users need none of this.
- Give drkit a principal of its own: rules of drkit's principals aren't carried to the target.

## Checked before anything changes

A failover's and a failback's plan asks each cluster what it allows drkit on the very topics and groups that the run is
to touch (KIP-430: a cluster tells a caller's own rights). One that is missing and that the run can't do without is an
obstacle: `--dry-run` names it, and nothing is changed (exit 3); one that it can do without is a warning, and so is each
that a failover lacks on the old primary. `drkit doctor` has the same as its check `rights`; a principal that may look,
or rehearse, but not commit is told so (exit 3).

Doctor asks for the other commands, too, before the night: `rights of failback`, `rights of mirror` … are a warning for
each command that lacks something on either cluster, with what happens without it and the `drkit acls` that prints the
rights; `rights of other commands` names those that lack nothing. A failover is accepted all the same (exit 0). Topics
and groups that the link names in full are asked for before they exist.

What a cluster can't tell isn't judged: rights on transactional ids, and on other topics that don't exist yet. While
a fence of drkit's own denies a right, the cluster's rules are read instead; where these don't explain what drkit may do
(another kind of authorizer), that right isn't judged.

## The table

*Optional*: the command works without, at the cost named. `endpoint`, `init`, `config`, `evidence` and `jars` need no
rights; `drill`, `lab` and `demo` have clusters of their own.
"""


def permissions_page() -> str:
    """The page."""
    return "\n".join((_HEAD, *_rows(), "", *_parts(), ""))


def _rows() -> Iterator[str]:
    yield "| commands | on | what | operations | for | without it |"
    yield "|---|---|---|---|---|---|"
    for need in TABLE:
        commands = ", ".join(f"`{command}`" for command in Command if command in need.commands)
        operations = ", ".join(operation.title_in_kafka for operation in need.operations)
        cells = (commands, _where(need), need.subject.value, operations, need.purpose, _without(need))
        yield f"| {' | '.join(cells)} |"


def _where(need: Need) -> str:
    where = need.side.value
    if need.when is not None:
        where += f", {need.when.value}"
    return where if need.who.value == "drkit" else f"{where}; of {need.who.value}"


def _without(need: Need) -> str:
    return f"optional: {need.without}" if need.optional else need.without


def _parts() -> Iterator[str]:
    yield "Commands that carry out others need what these need, too:"
    yield ""
    for command, parts in PARTS.items():
        named = [
            f"`{part.command}` of the way back ({Side.SOURCE} and {Side.TARGET} exchanged)"
            if part.turned
            else f"`{part.command}`"
            for part in parts
        ]
        yield f"- `{command}`: {', '.join(named)}"


if __name__ == "__main__":
    sys.stdout.write(permissions_page())
