"""Encodings of bytes and columns that both formats share."""
