"""The mirror runtime: engines, in-flight window, exact resume, topic sync, group capture."""
