"""Source and target compared: by digest, batch by batch, record by record."""
