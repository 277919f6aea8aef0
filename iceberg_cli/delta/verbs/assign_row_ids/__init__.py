"""`assign-row-ids` of Delta tables: row tracking."""
