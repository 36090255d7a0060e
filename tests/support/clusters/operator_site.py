"""An operator's clusters, with SCRAM over TLS and an authorizer.

drkit is not a super user, the shop's clients are live, and an independent reader checks the clusters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from drkit.config.environment import cache_dir
from drkit.drill.environment.clients import Clients
from drkit.drill.experiment.steps import Workload
from drkit.drill.judge.history import AttemptOutcome, RecordId
from drkit.drill.workload.reading import create_topic, read_all
from drkit.lab import Lab
from drkit.model.runs import RunSummary
from drkit.store import open_store
from tests.support.clusters.tls import SCRAM, Pem
from tests.support.wait import wait_until

PASSWORDS = {"drkit": "drkit-secret", "shop": "shop-secret"}
"""Users of every cluster: drkit itself, and the clients of the link's topics and groups."""
PARTITIONS = 3
_READ_SECONDS = 30.0
_A = AclOperation
_TOPIC = ResourceType.TOPIC
_GROUP = ResourceType.GROUP
_CLUSTER = ResourceType.BROKER
_TRANSACTION = ResourceType.TRANSACTIONAL_ID


class OperatorSite:
    """Links to `dr`, with the topics and groups that have the prefix `name` and a dot.

    Args:
        lab: with the listener `scram` of `tests.support.clusters.tls`.
        folder: for the configuration, the store, and all files of the operator's machine.
        name: unique on this lab.
        pem: the lab's certificates.
        sources: the sources of the links to `dr`.
    """

    def __init__(self, lab: Lab, folder: Path, name: str, pem: Pem, sources: Sequence[str] = ("primary",)) -> None:
        self.lab = lab
        self.folder = folder
        self.name = name
        self.pem = pem
        self.sources = tuple(sources)
        self.machine = "first"
        prefix = name if len(self.sources) == 1 else f"{name}.{self.sources[0]}"
        self.topic = f"{prefix}.orders"
        self.group = f"{prefix}.billing"
        folder.mkdir(parents=True, exist_ok=True)
        for alias in (*self.sources, "dr"):
            self.admit(alias)
        self.config_path.write_text(self._configuration(), encoding="utf-8")
        work = Workload(
            do="workload", topic=self.topic, group=self.group, partitions=PARTITIONS, records_per_second=200
        )
        clients = {alias: self.client(alias, "shop") for alias in (*self.sources, "dr")}
        (folder / "shop").mkdir(exist_ok=True)
        self.shop = Clients(name, folder / "shop", work, clients)

    @property
    def config_path(self) -> Path:
        return self.folder / "drkit.toml"

    @property
    def home(self) -> Path:
        """The state directory of the operator's current machine."""
        return self.folder / self.machine

    # -- the clusters' administrator ---------------------------------------------------------------

    def admit(self, alias: str) -> None:
        """Create the users of a cluster and their rights: those of docs/topics.md, and the clients'."""
        admin = AdminClient(self.administrator(alias))
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = [UserScramCredentialUpsertion(user, info, word.encode()) for user, word in PASSWORDS.items()]
        for done in admin.alter_user_scram_credentials(users).values():
            done.result(_READ_SECONDS)
        for made in admin.create_acls(self._rights()).values():
            made.result(_READ_SECONDS)
        wait_until(lambda: len(_rules(admin, self.name)) >= len(self._of_link()), what=f"the rules of {alias}")

    def administrator(self, alias: str) -> dict[str, str]:
        """Properties of a client with all rights."""
        return {"bootstrap.servers": self.lab.bootstrap(alias)}

    def client(self, alias: str, user: str) -> dict[str, str]:
        """Properties of a client with this user."""
        return {
            "bootstrap.servers": self.lab.bootstrap(alias, listener="scram"),
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": SCRAM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
            "ssl.ca.location": str(self.pem.ca),
            "log_level": "0",
        }

    def create_topic(self, alias: str = "primary") -> None:
        create_topic(self.administrator(alias), self.topic, PARTITIONS, 1, _READ_SECONDS)

    def cluster_id(self, alias: str) -> str:
        """The cluster's id, from the cluster itself."""
        return str(AdminClient(self.administrator(alias)).list_topics(timeout=_READ_SECONDS).cluster_id)

    def cluster_id_if_up(self, alias: str) -> str:
        """The same, or a word if it doesn't answer."""
        up = {node.cluster: node.state == "up" for node in self.lab.status()}
        return self.cluster_id(alias) if up[alias] else "unknown"

    def _of_link(self) -> list[AclBinding]:
        prefix = f"{self.name}."
        drkit = [
            *((_TOPIC, prefix, each) for each in (_A.READ, _A.WRITE, _A.CREATE, _A.DELETE, _A.DESCRIBE)),
            *((_TOPIC, prefix, each) for each in (_A.DESCRIBE_CONFIGS, _A.ALTER, _A.ALTER_CONFIGS)),
            *((_GROUP, prefix, each) for each in (_A.READ, _A.DESCRIBE, _A.DELETE)),
        ]
        shop = [
            *((_TOPIC, prefix, each) for each in (_A.READ, _A.WRITE, _A.DESCRIBE)),
            (_GROUP, prefix, _A.READ),
        ]
        return [_allow("drkit", *each) for each in drkit] + [_allow("shop", *each) for each in shop]

    def _rights(self) -> list[AclBinding]:
        common = [
            *((_TOPIC, "__drkit_state.", each) for each in (_A.CREATE, _A.DESCRIBE, _A.READ, _A.WRITE)),
            *((_TOPIC, "__drkit_journal", each) for each in (_A.CREATE, _A.DESCRIBE, _A.READ, _A.WRITE)),
            *((_TOPIC, "__consumer_offsets", each) for each in (_A.DESCRIBE, _A.READ)),
            (_TOPIC, "__transaction_state", _A.READ),
            (_GROUP, "drkit.mirror.", _A.READ),
            (_CLUSTER, "kafka-cluster", _A.ALTER),
            (_CLUSTER, "kafka-cluster", _A.DESCRIBE),
        ]
        everything = AclBinding(
            _TRANSACTION, "*", ResourcePatternType.LITERAL, "User:drkit", "*", _A.DESCRIBE, AclPermissionType.ALLOW
        )
        return [*self._of_link(), *(_allow("drkit", *each) for each in common), everything]

    def _configuration(self) -> str:
        lines = []
        for alias in (*self.sources, "dr"):
            for section, user, secret in (("client", "drkit", "KAFKA_PASSWORD"), ("fence.client", "shop", "PROBE")):
                client = self.client(alias, user)
                servers = client.pop("bootstrap.servers")
                del client["log_level"]
                if section == "client":
                    lines += [f"[clusters.{alias}]", f"bootstrap_servers = {json.dumps(servers)}"]
                lines.append(f"[clusters.{alias}.{section}]")
                for key, value in client.items():
                    given = f'{{ env = "{secret}" }}' if key == "sasl.password" else json.dumps(value)
                    lines.append(f"{json.dumps(key)} = {given}")
        lines += ["[store]", f'url = "sqlite:///{self.store_path}"']
        for source in self.sources:
            pattern = self._pattern(source)
            lines += [
                "[[links]]",
                f'source = "{source}"',
                'target = "dr"',
                f"topics = [{pattern}]",
                f"groups = [{pattern}]",
            ]
        lines += ["[objectives]", "rpo_records = 0", "rpo_seconds = 5", "rto_seconds = 60"]
        return "\n".join(lines) + "\n"

    def _pattern(self, source: str) -> str:
        return json.dumps(f"{self.name}[.].*" if len(self.sources) == 1 else f"{self.name}[.]{source}[.].*")

    # -- the operator's machine --------------------------------------------------------------------

    @property
    def store_path(self) -> Path:
        return self.folder / "drkit.db"

    def environment(self) -> dict[str, str]:
        """The environment of a command on the operator's current machine."""
        self.home.mkdir(exist_ok=True)
        return {
            "KAFKA_PASSWORD": PASSWORDS["drkit"],
            "PROBE": PASSWORDS["shop"],
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
            "DRKIT_CONFIG": str(self.config_path),
            "DRKIT_CACHE_DIR": str(cache_dir()),  # jars and compiled code: as if it had been used before
        }

    @contextmanager
    def mirror(self, log: str = "mirror.log") -> Iterator[subprocess.Popen[bytes]]:
        """`drkit mirror`, with a supervisor that doesn't restart it."""
        with (self.folder / log).open("ab") as out:
            child = subprocess.Popen(
                [sys.executable, "-m", "drkit", "mirror"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.folder,
                env={**os.environ, **self.environment()},
            )
            try:
                yield child
            finally:
                if child.poll() is None:
                    child.terminate()
                    try:
                        child.wait(20)
                    except subprocess.TimeoutExpired:
                        child.kill()
                        child.wait(20)

    def newest_run(self) -> RunSummary | None:
        """The newest failover or failback."""
        if not self.store_path.exists():
            return None
        store = open_store(f"sqlite:///{self.store_path}", create=False)
        try:
            return next((run for run in store.runs() if run.kind in {"failover", "failback", "reprotect"}), None)
        finally:
            store.close()

    # -- an independent reader ---------------------------------------------------------------------

    def acknowledged(self, alias: str | None = None) -> set[RecordId]:
        """The records that all clusters have acknowledged to the producers."""
        return {
            each.record
            for each in self.shop.attempts()
            if each.outcome is AttemptOutcome.ACKED and alias in {None, each.cluster}
        }

    def held(self, alias: str) -> set[RecordId]:
        """The records of a cluster's topic."""
        landed = read_all(self.administrator(alias), self.name, self.topic, PARTITIONS, _READ_SECONDS)
        return {one.record for one in landed if one.record is not None}

    def read_by_group(self) -> set[RecordId]:
        """The records that the group received, on any cluster."""
        return {poll.record for poll in self.shop.polls() if poll.record is not None}

    def write(self, alias: str) -> str:
        """The outcome of a record that a client writes now."""
        told: list[str] = []
        producer = Producer({**self.client(alias, "shop"), "message.timeout.ms": "5000"})
        producer.produce(
            self.topic, b"probe", on_delivery=lambda error, _: told.append(error.name() if error else "written")
        )
        producer.flush(20)
        return told[0]


def _allow(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    literal = kind is _CLUSTER or name.endswith(("_offsets", "_state"))
    pattern = ResourcePatternType.LITERAL if literal else ResourcePatternType.PREFIXED
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def _rules(admin: AdminClient, name: str) -> list[AclBinding]:
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    return [rule for rule in admin.describe_acls(everything).result(_READ_SECONDS) if rule.name == f"{name}."]
