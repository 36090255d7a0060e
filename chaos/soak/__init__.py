"""The soak: plays load and random faults on a link between three-broker clusters; an independent reader judges.

python -m chaos.soak --faults 100 --seed 1        see docs/soak.md
"""
