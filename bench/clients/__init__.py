"""How long applications wait for a cluster after a disaster: clients of each kind, however they find it.

Real clients of each kind read from and write to a primary that is then killed, or vanishes from the network. `drkit
failover` moves the groups and tells the directory. What is measured is when each client reads and writes again.
"""
