"""The program as `python -m iceberg_cli`."""

from iceberg_table_maintenance import main

if __name__ == "__main__":
    main()
