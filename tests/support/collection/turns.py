"""Modules of long tests on real clusters that alternate: `make test` runs some of each group (sampling.py)."""

from __future__ import annotations

TURNS: dict[str, tuple[int, tuple[str, ...]]] = {
    "clusters of several brokers": (
        1,
        (
            "integration/mirror/clusters/test_leaders.py",
            "integration/mirror/data_path/test_rack.py",
            "integration/mirror/clusters/test_three_brokers.py",
        ),
    ),
    "mirrors and what breaks": (
        2,
        (
            "integration/mirror/data_path/test_disk_full.py",
            "integration/mirror/lost_records/test_green_light.py",
            "integration/mirror/data_path/test_kill.py",
            "integration/mirror/workers/test_leaves.py",
            "integration/mirror/workers/test_mixed_releases.py",
            "integration/mirror/clusters/test_outages.py",
            "integration/mirror/workers/test_stopped_worker.py",
            "integration/mirror/lost_records/test_target_loss.py",
            "integration/mirror/lost_records/test_target_purge.py",
            "integration/mirror/workers/test_workers.py",
        ),
    ),
    "mirrors in depth": (
        4,
        (
            "integration/mirror/data_path/test_alignment.py",
            "integration/mirror/data_path/test_batches.py",
            "integration/mirror/data_path/test_exact_resume.py",
            "integration/mirror/data_path/test_fidelity.py",
            "integration/mirror/topics/test_groups.py",
            "integration/mirror/workers/test_lifecycle.py",
            "integration/mirror/data_path/test_mapping_exact.py",
            "integration/mirror/data_path/test_preserve.py",
            "integration/mirror/lost_records/test_problems.py",
            "integration/mirror/workers/test_reload.py",
            "integration/mirror/lost_records/test_source_cut.py",
            "integration/mirror/topics/test_topic_policy.py",
            "integration/mirror/topics/test_topics.py",
            "integration/mirror/lost_records/test_visible.py",
        ),
    ),
    "failovers beside other things": (
        2,
        (
            "integration/failover/fencing/test_fence_open.py",
            "integration/failover/planning/test_live_traffic.py",
            "integration/failover/planning/test_mirrormaker.py",
            "integration/failover/journal/test_other_store.py",
            "integration/failover/planning/test_page_decision.py",
            "integration/failover/planning/test_rehearse.py",
            "integration/failover/planning/test_share_groups.py",
            "integration/failover/journal/test_store_fails.py",
        ),
    ),
    "failbacks in depth": (
        2,
        (
            "integration/failover/failback/test_failback_cut.py",
            "integration/failover/failback/test_failback_keeps.py",
            "integration/failover/failback/test_failback_meanwhile.py",
            "integration/failover/failback/test_failback_purges.py",
            "integration/failover/failback/test_write_block.py",
        ),
    ),
    "frozen primaries": (
        1,
        (
            "integration/failover/running/test_frozen.py",
            "integration/failover/recovery/test_recovery_walk.py",
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
            "integration/audit/comparing/test_cluster.py",
            "integration/audit/watching/test_continuous.py",
            "integration/audit/command/test_interrupts.py",
            "integration/audit/command/test_rights.py",
            "integration/audit/command/test_secured.py",
        ),
    ),
    "kinds of audits": (
        2,
        (
            "integration/audit/comparing/test_altered.py",
            "integration/audit/comparing/test_every_way.py",
            "integration/audit/command/test_findings.py",
            "integration/audit/comparing/test_foreign_keys.py",
            "integration/audit/comparing/test_from_digests.py",
            "integration/audit/command/test_group_view.py",
            "integration/audit/comparing/test_mirrored.py",
        ),
    ),
    "audits in depth": (
        2,
        (
            "integration/audit/comparing/test_changing_logs.py",
            "integration/audit/comparing/test_compaction.py",
            "integration/audit/comparing/test_damage.py",
            "integration/audit/comparing/test_links.py",
            "integration/audit/command/test_session.py",
            "integration/audit/comparing/test_unreadable.py",
            "integration/seed/test_bulk_seed.py",
        ),
    ),
    "drills": (
        1,
        (
            "chaos/test_adversary.py",
            "chaos/test_drill_command.py",
            "chaos/test_drill_series.py",
            "chaos/test_experiments.py",
        ),
    ),
    "faults of drills": (
        1,
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
            "runbooks/test_switch_and_lag_played.py",
            "runbooks/test_tutorial_played.py",
        ),
    ),
}
"""Modules of long tests that alternate: `make test` runs so many of each group, which the seed draws; the others are
`long`. Drawn ones that sample their own cases continue to do so."""
