"""Azurite, Microsoft's own emulator of Azure Blob Storage: `python -m tests.azurite` installs it by npm.

It is kept in the user's cache folder, outside the checkout, by version: 365 MB.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.go_servers import CACHE

VERSION: Final = "3.37.0"
FOLDER: Final = CACHE.parent / f"azurite-{VERSION}"
MAIN: Final = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def install() -> None:
    """Install it, whole or not at all.

    Raises:
        CalledProcessError: npm cannot.
    """
    if MAIN.is_file():
        return
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent, prefix=".new-") as new:
        quiet = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"]
        subprocess.run(["npm", "install", *quiet, "--prefix", new, f"azurite@{VERSION}"], check=True)
        shutil.rmtree(FOLDER, ignore_errors=True)
        Path(new).rename(FOLDER)
        Path(new).mkdir()  # which the end of the block removes


if __name__ == "__main__":
    install()
