"""Record batches and the requests of the data path, read and written without a connection. Pure."""
