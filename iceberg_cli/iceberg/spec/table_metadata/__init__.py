"""Table metadata files: snapshots, refs, logs, statistics, and the updates that make the next version."""
