"""Delta tables that Delta Spark writes, and what it and delta-rs read of them after our verbs.

- `shapes` are the tables, each by its columns, properties and history.
- `lake.DeltaLake` has Delta Spark write each once and hands out copies: a log names files relative to its table, so a
  copy is a table of its own. It reads them with both, and runs our command line.
- `tests.delta_spark` is the process in which Delta Spark runs.
"""
