"""What brokers say of logs: offsets, leader epochs, divergence, producers and transactions."""
