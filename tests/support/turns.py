"""Modules of long tests on real clusters that alternate: `make test` runs some of each group (sampling.py)."""

from __future__ import annotations

TURNS: dict[str, tuple[int, tuple[str, ...]]] = {
    "clusters of several brokers": (
        1,
        (
            "integration/mirror/test_leaders.py",
            "integration/mirror/test_rack.py",
            "integration/mirror/test_three_brokers.py",
        ),
    ),
    "mirrors and what breaks": (
        4,
        (
            "integration/mirror/test_disk_full.py",
            "integration/mirror/test_green_light.py",
            "integration/mirror/test_kill.py",
            "integration/mirror/test_leaves.py",
            "integration/mirror/test_mixed_releases.py",
            "integration/mirror/test_outages.py",
            "integration/mirror/test_stopped_worker.py",
            "integration/mirror/test_target_loss.py",
            "integration/mirror/test_target_purge.py",
            "integration/mirror/test_workers.py",
        ),
    ),
    "mirrors in depth": (
        7,
        (
            "integration/mirror/test_alignment.py",
            "integration/mirror/test_batches.py",
            "integration/mirror/test_exact_resume.py",
            "integration/mirror/test_fidelity.py",
            "integration/mirror/test_groups.py",
            "integration/mirror/test_lifecycle.py",
            "integration/mirror/test_mapping_exact.py",
            "integration/mirror/test_preserve.py",
            "integration/mirror/test_problems.py",
            "integration/mirror/test_reload.py",
            "integration/mirror/test_source_cut.py",
            "integration/mirror/test_topic_policy.py",
            "integration/mirror/test_topics.py",
            "integration/mirror/test_visible.py",
        ),
    ),
    "failovers beside other things": (
        4,
        (
            "integration/failover/test_fence_open.py",
            "integration/failover/test_live_traffic.py",
            "integration/failover/test_mirrormaker.py",
            "integration/failover/test_other_store.py",
            "integration/failover/test_page_decision.py",
            "integration/failover/test_rehearse.py",
            "integration/failover/test_share_groups.py",
            "integration/failover/test_store_fails.py",
        ),
    ),
    "frozen primaries": (
        1,
        (
            "integration/failover/test_frozen.py",
            "integration/failover/test_recovery_walk.py",
        ),
    ),
    "sites": (
        1,
        (
            "integration/topologies/test_denied.py",
            "integration/topologies/test_late_worker.py",
            "integration/topologies/test_site_failback_fenced.py",
            "integration/topologies/test_site_page.py",
        ),
    ),
    "audits that start processes": (
        1,
        (
            "integration/audit/test_cluster.py",
            "integration/audit/test_continuous.py",
            "integration/audit/test_interrupts.py",
            "integration/audit/test_rights.py",
            "integration/audit/test_secured.py",
        ),
    ),
    "kinds of audits": (
        3,
        (
            "integration/audit/test_altered.py",
            "integration/audit/test_every_way.py",
            "integration/audit/test_findings.py",
            "integration/audit/test_foreign_keys.py",
            "integration/audit/test_from_digests.py",
            "integration/audit/test_group_view.py",
            "integration/audit/test_mirrored.py",
        ),
    ),
    "audits in depth": (
        3,
        (
            "integration/audit/test_changing_logs.py",
            "integration/audit/test_compaction.py",
            "integration/audit/test_damage.py",
            "integration/audit/test_links.py",
            "integration/audit/test_session.py",
            "integration/audit/test_unreadable.py",
            "integration/seed/test_bulk_seed.py",
        ),
    ),
    "drills": (
        1,
        (
            "chaos/test_adversary.py",
            "chaos/test_drill_series.py",
            "chaos/test_experiments.py",
        ),
    ),
    "faults of drills": (
        2,
        (
            "integration/drill/test_application_faults.py",
            "integration/drill/test_clients.py",
            "integration/drill/test_disk_faults.py",
            "integration/drill/test_topic_faults.py",
        ),
    ),
    "whole stories": (
        1,
        (
            "integration/test_demo.py",
            "runbooks/test_runbooks_played.py",
            "runbooks/test_tutorial_played.py",
        ),
    ),
}
"""Modules of long tests that alternate: `make test` runs so many of each group, which the seed draws; the others are
`long`. Drawn ones that sample their own cases continue to do so."""
