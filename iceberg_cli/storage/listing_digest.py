"""What stands for the files of a folder as they were listed: their names, sizes and times."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from iceberg_cli.storage import FileInfo


def listing_digest(folder: str, files: Iterable[FileInfo]) -> str | None:
    """A text that is another one where a file came, went or was replaced; None where there are no files.

    Args:
        folder: that was listed.
        files: of it, in any order.
    """
    lines = sorted(f"{each.path}\0{each.size_bytes}\0{each.modified_ms}" for each in files)
    if not lines:
        return None
    digest = hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()
    return f"{folder}#{digest}"
