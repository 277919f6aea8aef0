"""`merge-dvs` of Delta tables."""
