"""Rehearsal: experiments in YAML run on real clusters, judged by the applications' own history.

    experiment file ── experiment/ ──► steps ── played (runner.py) ──► history (what clients kept)
                                                                                   │
                                     verdict, RPO, RTO ◄── judge/ (checkers.py, measure.py)

Producer and consumer are separate processes with plain confluent-kafka (`workload/`), the mirror and the
failover are the real commands as child processes: no component judges itself.
"""
