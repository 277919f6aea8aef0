"""`python -m iceberg_cli`."""

from iceberg_cli.cli import main

main()
