"""undo on a Delta table: a VACUUM, or a log cleanup, whose files wait."""
