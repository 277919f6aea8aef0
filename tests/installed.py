"""A package that is installed for a test: one folder, and an entry point."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def install(
    site: Path, patch: pytest.MonkeyPatch, module: str, *, group: str, entry: str, source: str
) -> None:
    """Put a package on the path.

    Args:
        site: a folder, which may be there.
        patch: takes it off the path, and forgets it, at the end of the test.
        module: its name.
        group: of its entry point.
        entry: the entry point, such as `paper = paper_catalog:PaperCatalog`.
        source: of the module.
    """
    folder, metadata = site / module, site / f"{module}-1.dist-info"
    for each in (folder, metadata):
        each.mkdir(parents=True)
    (folder / "__init__.py").write_text(source)
    name = module.replace("_", "-")
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    patch.syspath_prepend(site)
    # Each test has a package of its own.
    patch.delitem(sys.modules, module, raising=False)
