"""The vocabulary of drkit: frozen value types and the error tree. No I/O here."""
