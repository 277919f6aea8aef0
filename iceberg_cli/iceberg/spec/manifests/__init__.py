"""Manifests and manifest lists: reading, writing, and what their entries must be."""
