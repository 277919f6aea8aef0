"""`rewrite-manifests` of Delta tables: checkpoints and log compaction."""
