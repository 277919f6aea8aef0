"""`expire-snapshots` of Delta tables: vacuum and log cleanup."""
