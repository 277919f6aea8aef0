"""`inspect` of Delta tables."""
