"""The adversary: damages the logs of a link's one-broker clusters as real clusters do, and judges with its own model.

python -m chaos.adversary --seed 1        see docs/soak.md
"""
