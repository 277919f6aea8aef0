"""Policies of Apache Polaris: `system.snapshot-expiry`, `system.data-compaction` and others.

Spec: polaris-core/src/main/resources/schemas/policies/system/*/2025-02-03.json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from iceberg_cli.errors import UsageError
from iceberg_cli.fleet.policy_import.documents import Node, read_text
from iceberg_cli.fleet.policy_import.draft import (
    COMPACT,
    EXPIRE,
    NO_FOLDERS,
    NO_KEY,
    NO_REF_AGE,
    ORPHANS,
    REWRITE,
    Draft,
    Verbs,
    hours,
    never,
    order_options,
    orphan_age,
    size,
)

_LISTS: Final = ("applicable-policies", "policies")
_TYPES: Final = ("policy-type", "type")
_EXPIRY: Final = "system.snapshot-expiry"
_METADATA: Final = "system.metadata-compaction"
_DATA: Final = "system.data-compaction"
_ORPHANS: Final = "system.orphan-file-removal"
_KNOWN: Final = ("version", "enable", "config")
_COUNTS: Final = ("min_snapshots_to_keep", "min_snapshot_to_keep")  # the schema's example has the second
_TARGET, _STRATEGY = "target_file_size_bytes", "compaction_strategy"
_AGE, _LOCATIONS = "max_orphan_file_age_in_days", "locations"
_MODE: Final = "prefix_mismatch_mode"
_NO_MODE: Final = "files are known by their names, whatever their paths begin with"
_NO_GROUP_SIZE: Final = "it has no meaning here: groups are cut by the size of new files"
_NOT_TAKEN: Final = {
    "max-file-group-size-bytes": _NO_GROUP_SIZE,
    "max_file_group_size_bytes": _NO_GROUP_SIZE,
    _TARGET: "the one beside config counts",
}
_DAY_H: Final = 24


def read(document: Node, draft: Draft) -> None:
    """Add what policies say for the tables that the command line names.

    Args:
        document: what the API answers about one policy, or about those that apply to a table: each with its type and
            its content, an object or its text.
        draft: gets one entry.

    Raises:
        UsageError: it is no such document.
    """
    verbs: Verbs = {}
    for policy in _policies(document):
        kind = next((found for key in _TYPES if (found := policy.child(key)) is not None), None)
        content = policy.child("content")
        if kind is None or content is None:
            raise UsageError(
                f"{policy.where} is no policy of Polaris: it has no type and content",
                next_step="Save what the API answers about it: GET .../policies/NAME or .../applicable-policies.",
            )
        if isinstance(content.value, str):
            content = read_text(content)
        name = kind.text()
        if name in _READERS:
            own = _READERS[name](content, draft)
            if taken := verbs.keys() & own.keys():
                raise UsageError(
                    f"{policy.where}: a second policy of the type {name}, for {', '.join(taken)}",
                    next_step="Save those that apply to one table, or each in a file of its own.",
                )
            verbs |= own
        else:
            draft.leave_out(policy, f"policies of the type {name} have no counterpart")
    if verbs:
        draft.add(draft.tables(), verbs)


def _policies(document: Node) -> Iterator[Node]:
    if isinstance(document.value, list):
        yield from document.items()
        return
    for key in _LISTS:
        if (found := document.child(key)) is not None:
            yield from found.items()
            return
    yield document.child("policy") or document


def _expiry(content: Node, draft: Draft) -> Verbs:
    draft.leave_out_others(content, _KNOWN)
    if not _enabled(content):
        return never(EXPIRE)
    verbs: Verbs = {EXPIRE: {}}
    config = content.child("config")
    for key, value in config.children() if config is not None else ():
        if key == "max_snapshot_age_days":
            verbs[EXPIRE]["older-than"] = hours(value.whole(0) * _DAY_H)
        elif key in _COUNTS:
            verbs[EXPIRE]["retain-last"] = value.whole(1)
        elif key == "max_ref_age_days":
            draft.leave_out(value, NO_REF_AGE)
        else:
            draft.leave_out(value)
    return verbs


def _metadata(content: Node, draft: Draft) -> Verbs:
    draft.leave_out_others(content, _KNOWN)
    if not _enabled(content):
        return never(REWRITE)
    verbs: Verbs = {REWRITE: {}}
    config = content.child("config")
    for key, value in config.children() if config is not None else ():
        if key == "spec_id":
            verbs[REWRITE]["spec-id"] = [value.whole(0)]
        else:
            draft.leave_out(value)
    return verbs


def _data(content: Node, draft: Draft) -> Verbs:
    """What a policy of compaction says; nothing where it clusters.

    The schema has the target beside `config`, samples of the API have it in there: the schema's counts.
    """
    draft.leave_out_others(content, (*_KNOWN, _TARGET))
    if not _enabled(content):
        return never(COMPACT)
    config, target = content.child("config"), content.child(_TARGET)
    options = order_options(None if config is None else config.child(_STRATEGY), draft)
    if options is None:
        return {}
    for key, value in config.children() if config is not None else ():
        if key == _STRATEGY or value.value is None:
            continue
        if key == _TARGET and target is None:
            target = value
        else:
            draft.leave_out(value, _NOT_TAKEN.get(key, NO_KEY))
    return {COMPACT: options | ({} if target is None else {"target-size": size(target.whole(1))})}


def _orphans(content: Node, draft: Draft) -> Verbs:
    draft.leave_out_others(content, (*_KNOWN, _AGE, _LOCATIONS))
    if not _enabled(content):
        return never(ORPHANS)
    age, locations, config = (content.child(key) for key in (_AGE, _LOCATIONS, "config"))
    if locations is not None:
        draft.leave_out(locations, NO_FOLDERS)
    for key, value in config.children() if config is not None else ():
        draft.leave_out(value, _NO_MODE if key == _MODE else NO_KEY)
    return {ORPHANS: {} if age is None else {"older-than": orphan_age(age, age.whole(0) * _DAY_H, draft)}}


def _enabled(content: Node) -> bool:
    enable = content.child("enable")
    if enable is None:
        raise UsageError(f"{content.where} has no enable, which the schema of policies requires")
    return enable.switch()


_READERS: Final[Mapping[str, Callable[[Node, Draft], Verbs]]] = {
    _EXPIRY: _expiry,
    _METADATA: _metadata,
    _DATA: _data,
    _ORPHANS: _orphans,
}
