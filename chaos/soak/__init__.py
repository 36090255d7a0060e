"""The soak: a link between three-broker clusters under load and random faults, judged by an independent reader.

python -m chaos.soak --faults 100 --seed 1        see docs/soak.md
"""
