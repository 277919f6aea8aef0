"""`rewrite-manifests` of Iceberg tables."""
