"""The program, also as `python -m iceberg_cli`: what must be set before anything else is imported."""

import gc
import os


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        from iceberg_cli import stopping

        stopping.hear()
    except KeyboardInterrupt:
        os.write(2, b"Stopped by Ctrl-C. Nothing was changed.\n")
        os._exit(130)
    # numpy's BLAS would start a thread for each core when it is imported, and nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports and metadata make many objects and hardly a cycle: looking for cycles every 700 objects finds nothing.
    gc.set_threshold(400_000)
    from iceberg_cli.cli import main as command_line

    command_line()


if __name__ == "__main__":
    from iceberg_table_maintenance import main as start

    start()
