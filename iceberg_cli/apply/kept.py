"""The plan and the removals that an operation keeps beside its journal, each checked against what names it."""

from __future__ import annotations

import hashlib

from iceberg_cli.errors import CorruptFile
from iceberg_cli.journal import PLAN_FILE, Journal
from iceberg_cli.plan import Plan
from iceberg_cli.removal_files import RemovalFiles, load
from iceberg_cli.removals import Removals
from iceberg_cli.saved_plan import plan_from_json
from iceberg_cli.strict_json import loads


def load_plan(journal: Journal) -> tuple[Plan, str] | None:
    """The plan that an operation was started with and its removals' name; None if it died before they were written.

    Raises:
        CorruptFile: the plan or its removals cannot be read whole.
    """
    path = f"{journal.folder}/{PLAN_FILE}"
    operation = journal.operation()
    try:
        data = journal.get(PLAN_FILE)
    except FileNotFoundError:
        if operation is not None and operation.steps:
            raise CorruptFile(path, None, "the journal has steps of this plan and it is not there") from None
        return None
    if operation is None or operation.plan_digest != hashlib.sha256(data).hexdigest():
        raise CorruptFile(path, None, "it is not the plan that the journal began with")
    document = loads(data, path)
    name = document["removals"]["file"]
    return plan_from_json(document, removals=load_removals(journal, name), path=path), name


def load_removals(journal: Journal, name: str) -> Removals:
    """Removals that an operation has kept, by the name of the file that stands for them.

    Raises:
        CorruptFile: they are not what they were named after.
    """
    return load(name, journal.get, journal.folder)


def keep(removals: RemovalFiles, journal: Journal) -> None:
    """Put the files of removals beside the journal."""
    for name, data in removals.files:
        journal.put(name, data)
