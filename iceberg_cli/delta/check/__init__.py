"""`inspect --check` of Delta tables."""
