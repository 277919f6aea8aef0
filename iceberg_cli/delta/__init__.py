"""The Delta transaction log protocol, sans-I/O: bytes and columns come in, values come out."""
