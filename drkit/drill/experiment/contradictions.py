"""What is wrong in an experiment though each of its keys is right: parts that contradict each other. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations

from drkit.drill.experiment.base import SOURCE, DrillModel, OfLink, Place
from drkit.drill.experiment.experiment import Experiment
from drkit.drill.experiment.faults import (
    NO_CLUSTER,
    ON_DISK,
    ApplicationFault,
    CertificateFault,
    CorruptBatch,
    CredentialFault,
    Fault,
    FillDisk,
    Kill,
    NetworkFault,
    NodeFault,
    TopicFault,
)
from drkit.drill.experiment.steps import (
    Failback,
    Failover,
    Mirror,
    Move,
    MoveClients,
    Parallel,
    Reprotect,
    Step,
    StopClients,
    Transactions,
    Wait,
    Workload,
    faults_of,
    struck_clusters,
)

_TRANSACTION_CHECKS = ("aborted_read", "torn_transaction", "dirty_commit", "stable_offset_stuck")
_ABORT_CHECKS = ("aborted_read", "dirty_commit")
_RUN = "the run of a failover, failback or reprotect"
_CLIENTS = "the clients"


def contradictions(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    """Each contradiction: the place of the key to correct, and the message."""
    if experiment.lab.tls and not experiment.lab.secured:
        yield ("lab", "tls"), "only applications that authenticate use TLS; set lab.secured to true"
    unknown = [*_contradictory_links(experiment), *_contradictory_names(experiment)]
    yield from unknown
    if not any(isinstance(step, Workload) for step in experiment.method):
        yield ("method",), "no workload step: only a workload records what was acknowledged"
        return
    if unknown:
        return  # what follows looks these names up
    wrong = list(_contradictory_workloads(experiment))
    yield from wrong
    if any(place == ("lab", "links") for place, _ in wrong):
        return
    for place, step in experiment.each_step():
        if isinstance(step, MoveClients | StopClients | Failover | Failback | Wait) and any(
            _before_workload(experiment, place, link) for link in _links_of(experiment, step)
        ):
            yield place, f"{step.do} comes before the workload is started"
    yield from _contradictory_checks(experiment)
    yield from _contradictory_moves(experiment)
    yield from _contradictory_branches(experiment)
    mirrors = [n for n, step in enumerate(experiment.method) if isinstance(step, Mirror)]
    for number in mirrors[1:]:
        yield ("method", number), "a second mirror; restart the node `mirror` to start it again"
    yield from _contradictory_faults(experiment, mirrors)


def _contradictory_links(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    names = [link.name for link in experiment.links]
    for number, link in enumerate(experiment.links):
        place = ("lab", "links", number)
        if link.source == link.target:
            yield place, f"{link.name} leads from a cluster to itself"
        if link.name in names[:number]:
            yield place, f"{link.name} is there twice"
        for end, alias in (("source", link.source), ("target", link.target)):
            if alias in NO_CLUSTER:
                yield (*place, end), f"{alias} can't be the alias of a cluster: it names a node of every lab"
    if experiment.lab.wan and SOURCE not in experiment.lab.clusters:
        yield ("lab", "wan"), f"the network that can be disturbed is the one to {SOURCE}, and no link has this cluster"


def _contradictory_names(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    """Links and clusters that the lab doesn't have; a link's cluster that is at neither end of it."""
    clusters, names = experiment.lab.clusters, [link.name for link in experiment.links]
    known = f"known: {', '.join(clusters)}"
    for place, part in _named_parts(experiment):
        link, cluster = getattr(part, "link", None), _cluster_named(part)
        key, alias = cluster or ("", None)
        for at, name in enumerate(getattr(part, "links", ())):
            if name not in names:
                yield (*place, "links", at), f"{name} is not a link of this experiment; known: {', '.join(names)}"
        if link is not None and link not in names:
            yield (*place, "link"), f"{link} is not a link of this experiment; known: {', '.join(names)}"
        elif alias is not None and alias not in clusters:
            yield (*place, key), f"{alias} is not a cluster of this experiment; {known}"
        elif link is not None and alias is not None and alias not in experiment.link(link).clusters:
            yield (*place, key), f"{alias} is at neither end of {link}"
        if isinstance(part, NodeFault) and not _is_node(part, clusters):
            rest = " (all brokers)" if isinstance(part, FillDisk) else ", cassandra (all nodes), mirror, run"
            yield (*place, "node"), f"{part.node!r} is not a node that it can strike; {known}{rest}, {clusters[0]}-1 …"
    for alias in experiment.safety.healthy_brokers:
        if alias not in clusters:
            place = ("safety", "healthy_brokers", alias)
            yield place, f"{alias} is not a cluster of this experiment; {known}"


def _is_node(fault: NodeFault, clusters: Sequence[str]) -> bool:
    alias, number, _ = fault.node.partition("-")
    if alias in clusters:
        return True
    return not isinstance(fault, FillDisk) and (alias == "cassandra" or (alias in NO_CLUSTER and not number))


def _cluster_named(part: DrillModel) -> tuple[str, str] | None:
    """The key by which a part names a cluster, and the cluster."""
    for key in ("cluster", "to"):
        if isinstance(alias := getattr(part, key, None), str):
            return key, alias
    return None


def _named_parts(experiment: Experiment) -> Iterator[tuple[Place, DrillModel]]:
    """What may name a link or a cluster: conditions, steps, faults; with its place."""
    for number, condition in enumerate(experiment.steady_state.conditions):
        yield ("steady_state", "conditions", number), condition
    for number, condition in enumerate(experiment.safety.abort_when):
        yield ("safety", "abort_when", number), condition
    for place, step in experiment.each_step():
        if isinstance(step, Wait):
            yield (*place, "until"), step.until
        elif not isinstance(step, Fault | Parallel):
            yield place, step
    for number, rollback in enumerate(experiment.rollbacks):
        if not isinstance(rollback, Fault):
            yield ("rollbacks", number), rollback
    yield from experiment.each_fault()


def _contradictory_workloads(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    """Each link has one workload; workloads share neither a topic nor a group of a cluster."""
    found: list[tuple[int, Workload]] = []
    for number, step in enumerate(experiment.method):
        if not isinstance(step, Workload):
            continue
        place = ("method", number)
        if any(step.link == other.link for _, other in found):
            yield place, f"a second workload of {step.link}; a link has one"
            continue
        mine = {(alias, experiment.link(step.link).topic_on(alias, step.topic)) for alias in _ends(experiment, step)}
        for _, other in found:
            spec = experiment.link(other.link)
            theirs = {(alias, spec.topic_on(alias, other.topic)) for alias in spec.clusters}
            shared = sorted(mine & theirs)
            if shared:
                yield (*place, "topic"), f"{other.link} has the topic {shared[0][1]} on {shared[0][0]}, too"
            if step.group == other.group and {*_ends(experiment, step)} & {*spec.clusters}:
                yield (*place, "group"), f"the group of {other.link} has the same name, and the links share a cluster"
        found.append((number, step))
    for link in experiment.links:
        if link.name not in {step.link for _, step in found}:
            yield ("lab", "links"), f"{link.name} has no workload: nothing would judge it"


def _ends(experiment: Experiment, step: OfLink) -> tuple[str, str]:
    return experiment.link(step.link).clusters


def _links_of(experiment: Experiment, step: Step) -> list[str | None]:
    """The links that a step concerns; None: any."""
    if isinstance(step, Failover):
        return [link.name for link in experiment.moved_by(step)]
    return [getattr(step.until if isinstance(step, Wait) else step, "link", None)]


def _contradictory_branches(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    """Steps of two branches that act on the same thing: which one acts first would be chance."""
    for number, step in enumerate(experiment.method):
        if not isinstance(step, Parallel):
            continue
        for (_, others), (at, branch) in combinations(enumerate(step.branches), 2):
            taken = [target for other in others for target in _acts_on(other)]
            clusters = {cluster for other in others for cluster in struck_clusters(other)}
            for one, inner in enumerate(branch):
                place = ("method", number, "branches", at, one)
                both = next((target for target in _acts_on(inner) if _overlaps(target, taken)), None)
                if both is not None:
                    yield place, f"another branch acts on {both}, too: the order would be chance; use one branch"
                against = sorted(clusters - {*struck_clusters(inner)}) if struck_clusters(inner) else []
                if experiment.safety.never_both_sides and against:
                    yield (
                        place,
                        f"another branch strikes {against[0]} at the same time; safety.never_both_sides forbids it",
                    )


def _acts_on(step: Step) -> list[str]:
    """What a step changes that no other branch may change at the same time; a node by its name."""
    found = [each for fault in faults_of(step) for each in _fault_acts_on(fault)]
    if isinstance(step, Move | Reprotect):
        return [_RUN, *found]
    if isinstance(step, MoveClients):
        return [_CLIENTS, _RUN]  # where clients move depends on what the run has done
    return [_CLIENTS] if isinstance(step, StopClients) else found


def _fault_acts_on(fault: Fault) -> list[str]:
    if isinstance(fault, NodeFault):
        return [] if fault.node == "run" else [fault.node]
    if isinstance(fault, NetworkFault):
        return ["the network"]
    if isinstance(fault, CredentialFault):
        return [f"the credentials on {fault.cluster}"]
    if isinstance(fault, CertificateFault):
        return [f"the certificate of {fault.cluster}"]
    if isinstance(fault, TopicFault):
        on_disk = [fault.cluster] if isinstance(fault, ON_DISK) else []
        return [f"the topic on {fault.cluster}", *on_disk]
    return [_CLIENTS]


def _overlaps(target: str, others: Sequence[str]) -> bool:
    """Whether it is among them; an alias stands for each of its nodes."""
    return any(target == other or target.startswith(f"{other}-") or other.startswith(f"{target}-") for other in others)


def _contradictory_faults(experiment: Experiment, mirrors: Sequence[int]) -> Iterator[tuple[Place, str]]:
    for place, fault in experiment.each_fault():
        if isinstance(fault, NodeFault):
            yield from _contradictory_node_fault(experiment, place, fault, mirrors)
        elif isinstance(fault, NetworkFault):
            if not experiment.lab.wan:
                yield place, "the lab has no network to primary that could be disturbed; set lab.wan to true"
        elif isinstance(fault, ApplicationFault):
            yield from _contradictory_application_fault(experiment, place, fault)
        else:
            yield from _contradictory_topic_fault(experiment, place, fault)


def _contradictory_node_fault(
    experiment: Experiment, place: Place, fault: NodeFault, mirrors: Sequence[int]
) -> Iterator[tuple[Place, str]]:
    started = mirrors[0] if mirrors else len(experiment.method)
    early = place[0] == "method" and isinstance(place[1], int) and place[1] < started
    if fault.node == "mirror" and (not mirrors or early):
        yield (*place, "node"), "the mirror is not started before this step"
    if fault.node.startswith("cassandra") and experiment.lab.store != "cassandra":
        yield (*place, "node"), "the lab has no Cassandra; set lab.store to cassandra"
    if fault.node == "run" and ("strikes" not in place or not isinstance(fault, Kill)):
        yield (
            (*place, "node"),
            "run is the process of a failover or failback: it can only be killed, and only at one of their stages",
        )


def _contradictory_application_fault(
    experiment: Experiment, place: Place, fault: ApplicationFault
) -> Iterator[tuple[Place, str]]:
    if isinstance(fault, CredentialFault):
        if not experiment.lab.secured:
            yield place, "the applications of this lab need no credentials; set lab.secured to true"
    elif isinstance(fault, CertificateFault):
        if not experiment.lab.tls:
            yield place, "the applications of this lab don't use TLS; set lab.tls to true"
        elif experiment.lab.brokers > 1:
            yield place, f"{fault.do} strikes the certificate of a cluster's only broker; set lab.brokers to 1"
    elif _before_workload(experiment, place, fault.link):
        yield place, f"{fault.do} comes before the workload is started: no producer runs"


def _before_workload(experiment: Experiment, place: Place, link: str | None) -> bool:
    """Whether it is before the workload of a link; None: before any."""
    steps = enumerate(experiment.method)
    started = min(n for n, step in steps if isinstance(step, Workload) and link in (None, step.link))
    return place[0] == "method" and isinstance(place[1], int) and place[1] < started


def _contradictory_topic_fault(experiment: Experiment, place: Place, fault: TopicFault) -> Iterator[tuple[Place, str]]:
    if _before_workload(experiment, place, fault.link):
        yield place, f"{fault.do} comes before the workload is started: its topic doesn't exist"
    if isinstance(fault, ON_DISK) and experiment.lab.brokers > 1:
        yield place, f"{fault.do} strikes a topic's only replica; set lab.brokers to 1"
    partitions = experiment.workload(fault.link).partitions
    if isinstance(fault, CorruptBatch) and fault.partition >= partitions:
        yield (*place, "partition"), f"the workload has {partitions} partitions, counted from 0"


def _contradictory_moves(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    for place, step, away in experiment.each_move():
        if isinstance(step, Failover):
            yield from _contradictory_failover(experiment, place, step, away)
        else:
            yield from _contradictory_return(experiment, place, step, away)
        if isinstance(step, Reprotect):
            continue
        stages = [strike.at for strike in step.strikes]
        for at, stage in enumerate(stages):
            if stage in stages[:at]:
                yield (*place, "strikes", at, "at"), f"{stage} is there twice; put its faults together"
        kills = sum(isinstance(fault, Kill) and fault.node == "run" for fault in faults_of(step))
        if kills > step.resumes:
            yield place, f"its run is killed; set resumes to at least {kills}, or it never ends"


def _contradictory_failover(
    experiment: Experiment, place: Place, step: Failover, away: Collection[str]
) -> Iterator[tuple[Place, str]]:
    leading = [link.name for link in experiment.links if link.target == step.to]
    if not leading:
        yield (*place, "to"), f"no link leads to {step.to}"
        return
    if step.runbook is not None:
        for key in sorted(step.model_fields_set - {"do", "to", "runbook", "timeout_seconds"}):
            yield (*place, key), "the runbook's own commands say it; leave it out"
        if len(leading) > 1:
            yield (*place, "runbook"), f"a runbook is about one link, and {' and '.join(leading)} lead to {step.to}"
    for at, link in enumerate(step.links):
        if link not in leading:
            yield (*place, "links", at), f"{link} does not lead to {step.to}"
    for moved in experiment.moved_by(step):
        if moved.name in away and not step.groups:
            yield place, f"a failover before it moved {moved.name}, and nothing brought it back"
        if step.groups and experiment.workload(moved.name).group not in step.groups:
            yield (*place, "groups"), f"the group of {moved.name} is not among them; name the other links in links"


def _contradictory_return(
    experiment: Experiment, place: Place, step: Failback | Reprotect, away: Collection[str]
) -> Iterator[tuple[Place, str]]:
    for at, link in enumerate(step.links):
        if link not in away:
            yield (*place, "links", at), f"no failover before it moves {link}"
    sources = list(dict.fromkeys(link.source for link in experiment.links if link.name in away))
    if not sources:
        yield place, f"a {step.do} needs a failover before it"
    elif isinstance(step, Failback) and step.to not in (None, *sources):
        yield (*place, "to"), f"the groups come from {' and '.join(sources)}"
    elif not experiment.returned_by(step, away):
        yield place, f"none of its links comes from {getattr(step, 'to', None)}"


def _contradictory_checks(experiment: Experiment) -> Iterator[tuple[Place, str]]:
    objectives = experiment.objectives
    moved, targets = bool(experiment.moving), " or ".join(dict.fromkeys(link.target for link in experiment.links))
    transactions = [experiment.workload(link.name).transactions for link in experiment.links]
    for number, name in enumerate(experiment.checks):
        if name in experiment.checks[:number]:
            yield ("checks", number), f"{name} is there twice"
        if name == "lost" and objectives.rpo_records is None and objectives.rpo_seconds is None:
            yield (
                ("checks", number),
                "lost needs an RPO: set objectives.rpo_records or objectives.rpo_seconds",
            )
        if name in _TRANSACTION_CHECKS and (needed := _lacking_transactions(name, transactions)):
            yield ("checks", number), f"{name} needs {needed} in the workload"
        if name == "skipped_by_group" and not moved:
            yield (
                ("checks", number),
                f"skipped_by_group needs a move_clients step to {targets}: without one no group reads there",
            )
        if name in ("reread_beyond_plan", "loss_beyond_plan") and not experiment.measures_rto:
            yield (
                ("checks", number),
                f"{name} needs a failover step and a move_clients step to {targets}: else there is no plan",
            )
    if objectives.rto_seconds is not None and not experiment.measures_rto:
        yield ("objectives", "rto_seconds"), f"an RTO needs a failover step and a move_clients step to {targets}"


def _lacking_transactions(check: str, workloads: Sequence[Transactions | None]) -> str | None:
    """What one of the workloads lacks for a check of transactions."""
    if any(each is None for each in workloads):
        return "transactions"
    aborts = all(each is not None and each.abort_every for each in workloads)
    return "transactions.abort_every above 0" if check in _ABORT_CHECKS and not aborts else None
