"""`undo` of Delta tables."""
