"""`restore` of Delta tables: RESTORE to an earlier version."""
