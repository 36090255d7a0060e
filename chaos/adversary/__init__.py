"""The adversary: a link between one-broker clusters under what real clusters do to logs, judged by a model of its own.

python -m chaos.adversary --seed 1        see docs/soak.md
"""
