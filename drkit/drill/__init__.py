"""Drills: YAML experiments that run on real clusters and are judged by the applications' own history.

    experiment file ── experiment/ ──► steps ── played (runner.py) ──► history (by the clients)
                                                                                   │
                                     verdict, RPO, RTO ◄── judge/ (checkers.py, verdict.py)

Producer and consumer are separate processes with plain confluent-kafka (`workload/`); mirror and failover are the real
commands as child processes. So no component judges itself.
"""
