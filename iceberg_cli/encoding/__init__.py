"""Bytes and columns that both formats share."""
