"""Both clusters' logs as rows, read by Spark's tasks."""
