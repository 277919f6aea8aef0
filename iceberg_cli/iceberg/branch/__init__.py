"""A branch: its head, the manifests that the head lists, and the row ids that are in use."""
