"""restore: sets a branch back to an earlier snapshot, and keeps the old head by a tag."""
