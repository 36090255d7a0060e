"""Rehearsal: experiments in YAML played on real clusters, judged by what applications really saw.

    experiment file ── experiment/ ──► steps ── played (runner.py) ──► history (what clients kept)
                                                                                   │
                                     verdict, RPO, RTO ◄── judge/ (checkers.py, measure.py)

Producer and consumer are processes of their own on plain confluent-kafka (`workload/`), the mirror
and the failover are the real commands as child processes: nothing that is judged judges itself.
"""
