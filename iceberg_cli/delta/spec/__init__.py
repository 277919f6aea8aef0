"""The Delta protocol's files and rules, without input or output."""
