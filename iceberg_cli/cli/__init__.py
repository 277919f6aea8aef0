"""The command line: flags in, exit code out."""
