"""What tests of every kind share: a lab, a Cassandra node, waiting for conditions."""
