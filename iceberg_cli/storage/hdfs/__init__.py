"""HDFS, which is read and not written to."""
