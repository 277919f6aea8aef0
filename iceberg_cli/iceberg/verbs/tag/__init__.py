"""tag: makes, replaces or drops a tag."""
