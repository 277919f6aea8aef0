"""`upgrade-v3` of Delta tables: table features."""
