"""The table-config (version 2) and the fleet file (version 1) of zamboni."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node, read_file
from iceberg_cli.fleet.policy_import.draft import (
    COMPACT,
    EXPIRE,
    MERGE,
    NO_ORDER,
    NO_REF_AGE,
    NO_SCHEDULE,
    ORPHANS,
    REWRITE,
    Draft,
    Verbs,
    hours,
    never,
    orphan_age,
    size,
    table_pattern,
)

_CONFIG_VERSION: Final = 2
_FLEET_VERSION: Final = 1
_NO_LAYOUT: Final = "how data is partitioned is up to its writers"
_NO_HOLD: Final = "partitions whose window is open, or was lately, are compacted, too"
_NO_METADATA: Final = "old metadata files are up to the table: properties write.metadata.*"
_HOLD: Final = "skip_partitions_newer_than_windows"
_LAYOUT: Final = {"partition": _NO_LAYOUT, "partition_evolution": _NO_LAYOUT}
_ORDERING: Final = "ordering"
_UNORDERED: Final = "none"
_TARGET, _LEAST_FILES = "target_file_size_bytes", "min_input_files"
_OF_RETENTION: Final = {"metadata": _NO_METADATA}
_VERBS: Final = ("expire_snapshots", "rewrite_manifests", "remove_dangling_deletes", "remove_orphan_files")
_OF_THE_SERVICE: Final = {
    "schedule": NO_SCHEDULE,
    "random": NO_SCHEDULE,
    "pressure": NO_SCHEDULE,
    "uri": "catalogs are in PyIceberg's configuration",
}
_DAY_H: Final = 24


def read(document: Node, draft: Draft) -> None:
    """Add what a table-config says, or those of every warehouse of a fleet.

    A table's block replaces what the defaults have, key by key; both replace what is built in, by which data files are
    compacted from two of a partition on, snapshots expire, manifests are rewritten, dangling deletes removed and orphan
    files deleted.

    Args:
        document: the table-config or the fleet file.
        draft: gets an entry for tables that have the same.

    Raises:
        UsageError: it is neither, or of another version.
    """
    warehouses = document.child("warehouses")
    if warehouses is None:
        _table_config(document, draft, None)
        return
    if draft.patterns:
        raise UsageError(
            f"{draft.path} names the catalog of each warehouse itself", next_step="Name no catalog."
        )
    _check_version(document, _FLEET_VERSION)
    for key, value in document.children():
        if key in _OF_THE_SERVICE:
            draft.leave_out(value, _OF_THE_SERVICE[key])
    for warehouse in warehouses.items():
        name, config = warehouse.child("name"), warehouse.child("table_config")
        if name is None or config is None:
            raise UsageError(f"{warehouse.where} has no name and table_config")
        for key, value in warehouse.children():
            if key in _OF_THE_SERVICE:
                draft.leave_out(value, _OF_THE_SERVICE[key])
        if isinstance(config.value, str):
            config = read_file(os.path.join(os.path.dirname(document.file), config.value))
        _table_config(config, draft, name.text())


def _table_config(document: Node, draft: Draft, warehouse: str | None) -> None:
    """Add what a table-config says.

    Args:
        document: the table-config.
        draft: gets the entries.
        warehouse: its name in the fleet file; None: there is no fleet file.
    """
    namespaces = document.child("namespaces")
    if namespaces is None:
        raise UsageError(
            f"{document.where} is no table-config of version {_CONFIG_VERSION}: it has no namespaces",
            next_step="Name zamboni's table-config.json, or its fleet file.",
        )
    _check_version(document, _CONFIG_VERSION)
    own = document.child("warehouse")
    if own is not None and warehouse not in (None, own.text()):
        raise UsageError(f"{own.where} is {own.text()!r}, and the fleet file names {warehouse!r}")
    catalog = warehouse or draft.catalog(None if own is None else own.text())
    defaults = document.child("defaults")
    _note(defaults, draft)
    holds_as_built_in = False
    for namespace, block in namespaces.children():
        tables = block.child("tables")
        for table, settings in tables.children() if tables is not None else ():
            _note(settings, draft)
            merged = _merged({} if defaults is None else defaults.object(), settings.object())
            if _ORDERING in settings.object():  # the one key that a block replaces whole
                merged[_ORDERING] = settings.object()[_ORDERING]
            verbs = _verbs(Node(file=settings.file, path=settings.path, value=merged))
            holds_as_built_in |= COMPACT in verbs and _HOLD not in merged
            draft.add((table_pattern(catalog, *namespace.split("."), table),), verbs)
    if holds_as_built_in:
        draft.leave_out(namespaces, _NO_HOLD)


def _check_version(document: Node, version: int) -> None:
    found = document.child("version")
    if found is not None and found.whole(0) != version:
        raise UsageError(f"{found.where} must be {version}, not {found.value}")


def _note(block: Node | None, draft: Draft) -> None:
    """Note what a block has beside the verbs."""
    for key, value in block.children() if block is not None else ():
        if key in _LAYOUT:
            draft.leave_out(value, _LAYOUT[key])
        elif key == _HOLD:
            if value.value is not None:
                draft.leave_out(value, _NO_HOLD)
        elif key == _ORDERING:
            if _is_ordered(value):
                draft.leave_out(value, NO_ORDER)
        elif key not in ("retention", "description", _TARGET, _LEAST_FILES):
            draft.leave_out(value)
    retention = None if block is None else block.child("retention")
    for key, value in retention.children() if retention is not None else ():
        if key in _OF_RETENTION:
            draft.leave_out(value, _OF_RETENTION[key])
        elif key not in _VERBS:
            draft.leave_out(value)
        elif key == "expire_snapshots" and (age := value.child("max_ref_age_days")) is not None:
            draft.leave_out(age, NO_REF_AGE)
        elif key == "remove_orphan_files" and (age := value.child("older_than_days")) is not None:
            orphan_age(age, age.whole(0) * _DAY_H, draft)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """What a block has over another, key by key at every depth: null is a value, too."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        merged[key] = _merged(below, value) if isinstance(value, dict) and isinstance(below, dict) else value
    return merged


def _verbs(settings: Node) -> Verbs:
    retention = settings.child("retention")
    expire, rewrite, dangling, orphans = (
        None if retention is None else retention.child(key) for key in _VERBS
    )
    verbs: Verbs = {} if _is_ordered(settings.child(_ORDERING)) else {COMPACT: _compaction(settings)}
    if _is_on(expire):
        verbs[EXPIRE] = {}
        age, least = (
            None if expire is None else expire.child(key)
            for key in ("max_snapshot_age_days", "min_snapshots_to_keep")
        )
        if age is not None:
            verbs[EXPIRE]["older-than"] = hours(age.whole(0) * _DAY_H)
        if least is not None:
            verbs[EXPIRE]["retain-last"] = least.whole(1)
    else:
        verbs |= never(EXPIRE)
    if _is_on(rewrite):
        least = None if rewrite is None else rewrite.child("min_input_manifests")
        verbs[REWRITE] = {} if least is None else {"min-manifests": least.whole(2)}
    else:
        verbs |= never(REWRITE)
    verbs |= {MERGE: {}} if _is_on(dangling) else never(MERGE)
    if _is_on(orphans):  # by default from three days on, as here
        age = None if orphans is None else orphans.child("older_than_days")
        verbs[ORPHANS] = {} if age is None else {"older-than": orphan_age(age, age.whole(0) * _DAY_H, None)}
    else:
        verbs |= never(ORPHANS)
    return verbs


def _compaction(settings: Node) -> dict[str, Any]:
    least, target = settings.child(_LEAST_FILES), settings.child(_TARGET)
    # Two are built in, and five are the default here.
    options: dict[str, Any] = {"min-input-files": 2 if least is None else least.whole(1)}
    return options if target is None else {"target-size": size(target.whole(1)), **options}


def _is_ordered(ordering: Node | None) -> bool:
    mode = None if ordering is None or ordering.value is None else ordering.child("mode")
    return mode is not None and mode.text() != _UNORDERED


def _is_on(verb: Node | None) -> bool:
    enabled = None if verb is None else verb.child("enabled")
    return enabled is None or enabled.switch()
