"""The terminal: standard streams, the pager, and Ctrl-C."""
