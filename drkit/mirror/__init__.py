"""The mirror: engine, exact resume, topic sync, workers, group capture, and the runtime that connects them."""
