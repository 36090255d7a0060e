"""Measures how long applications are without a cluster after a disaster, by kind of client and of discovery.

Real clients of each kind read from and write to a primary that is then killed, or vanishes from the network. `drkit
failover` moves the groups and updates the directory. The measurement is when each client reads and writes again.
"""
