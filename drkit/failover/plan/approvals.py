"""The two-person rule: checks a plan's approval."""

from __future__ import annotations

from collections.abc import Iterable

from drkit.config.schema.config import ApprovalsConfig
from drkit.failover.plan.failback_plan import FailbackPlan
from drkit.failover.plan.failover_plan import FailoverPlan
from drkit.model.errors import Refused
from drkit.model.runs import ACCEPT_LOSS, ALLOW_REWIND, Approval


def flags_of(plan: FailoverPlan | FailbackPlan, waived: Iterable[str]) -> frozenset[str]:
    """The risks that a plan accepts, as flags. `waived`: flags that are not part of the plan."""
    flags = set(waived)
    if isinstance(plan, FailoverPlan):
        flags |= {f"{ACCEPT_LOSS} {plan.accept_loss}"} if plan.accept_loss is not None else set()
        flags |= {ALLOW_REWIND} if plan.allow_rewind else set()
    return frozenset(flags)


def check_approved(
    rule: ApprovalsConfig | None, approval: Approval | None, digest: str, flags: frozenset[str], what: str
) -> None:
    """Raise `Refused` if the rule requires an approval and this plan has none.

    Args:
        rule: `[approvals]`, or None.
        approval: the given approval.
        digest: of the plan; empty for an action without a plan, which only an emergency allows.
        flags: from `flags_of`.
        what: a description of the action.
    """
    if rule is None:
        return
    alone = "drkit … --emergency REASON, which is journaled" if rule.emergency else "[approvals] allows no emergency"
    sign = f"Two operators: drkit evidence approve {digest or 'DIGEST'} --key FILE --out FILE, with each flag that is "
    if approval is None:
        raise Refused(
            f"{what} is not approved",
            meaning="[approvals] requires the signatures of two operators. Nothing was changed",
            remedy=f"{sign}given. Then give both files: --approval FILE --approval FILE. In an emergency: {alone}",
        )
    if approval.emergency is not None:
        if not rule.emergency:
            raise Refused(
                f"{what} is not approved, and [approvals] allows no emergency",
                meaning="Nothing was changed",
                remedy=f"{sign}given",
            )
        return
    if not digest or approval.digest != digest:
        raise Refused(
            f"{what} is not what {' and '.join(approval.operators)} approved",
            meaning=f"The plan's digest is {digest or 'none'}, theirs {approval.digest}: the clusters or the request "
            "differ. Nothing was changed",
            remedy=f"{sign}given",
        )
    if more := sorted(flags - approval.allows):
        raise Refused(
            f"{what} uses {' and '.join(more)}, which was not approved",
            meaning=f"{' and '.join(approval.operators)} signed the plan without it. Nothing was changed",
            remedy=f"{sign}given: {' '.join(more)}",
        )
