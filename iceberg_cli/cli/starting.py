"""The start of the program: what must be set before anything else is imported."""

from __future__ import annotations

import gc
import os
import sys

_UTF8 = "utf-8"


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        from iceberg_cli.cli.terminal import stopping

        stopping.hear()
    except KeyboardInterrupt:
        os.write(2, b"Stopped by Ctrl-C. Nothing was changed.\n")
        os._exit(130)
    _name_files_in_utf8()
    # numpy's BLAS would start a thread for each core when it is imported, and nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Imports and metadata make many objects and hardly a cycle: looking for cycles every 700 objects finds nothing.
    gc.set_threshold(400_000)
    from iceberg_cli.cli.app import main as command_line

    command_line()


def _name_files_in_utf8() -> None:
    """Begin anew in Python's UTF-8 mode where the locale has another encoding.

    Tables name their files in Unicode, which engines spell in UTF-8. In the locale's encoding a name would be another
    file's, or none. What is printed stays in the encoding that was asked for.
    """
    if sys.getfilesystemencoding() == _UTF8:
        return
    if "utf8" in sys._xoptions or not sys.executable:  # noqa: SLF001 - nothing else tells
        message = (
            f"Cannot start: files are named in {sys.getfilesystemencoding()} here, and in UTF-8 by tables"
        )
        sys.stderr.write(f"error: {message}.\nNothing was changed.\nStart it without -X utf8=0.\n")
        sys.exit(2)
    if sys.stdout is not None:
        os.environ.setdefault("PYTHONIOENCODING", f"{sys.stdout.encoding}:backslashreplace")
    os.environ["PYTHONUTF8"] = "1"  # for the processes that this one starts
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - itself
