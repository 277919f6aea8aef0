"""The reader of the `plan/2` document that `plan -o` and the journal save, and of `plan/1` of the first release."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from iceberg_cli.encoding.strict_json import check_shape
from iceberg_cli.errors import CorruptFile, UsageError
from iceberg_cli.plan.plan import (
    PLAN_SCHEMA,
    SNAPSHOT_ID,
    SNAPSHOT_IDS,
    Base,
    Change,
    ListedFiles,
    Option,
    Plan,
    SavedDraft,
    Step,
    TaggedFiles,
    Task,
    Verdict,
)
from iceberg_cli.plan.removals import Removals

_FIRST_SCHEMA: Final = "iceberg-cli/plan/1"
_SHAPE: Final[Mapping[str, Any]] = {
    "operation": str,
    "table": {"name": str, "location": str, "format": str, "format_version": int},
    "base": {"table_uuid": str, "version": str, "refs": dict, "last_sequence_number": str},
    "as_of_ms": int,
    "options": dict,
    "policy": dict,
    "verdicts": [{"subject": str, "id": str, "keep": bool, "reason": str, "timestamp_ms": (int, None)}],
    "warnings": [str],
    "lasting": [str],
    "blocked_by": [str],
    "steps": [
        {
            "name": str,
            "requires": (str, None),
            "unconditional": bool,
            "tasks": [{"name": str, "kind": str, "inputs": [str]}],
            "change": ({"updates": [dict], "draft": (dict, None), "counts": dict}, None),
        }
    ],
    "grace_ms": int,
}


def no_file(name: str) -> bytes:
    """There is no file beside a plan."""
    raise FileNotFoundError(name)


def plan_from_json(
    value: Mapping[str, Any],
    *,
    removals: Removals | None,
    path: str,
    read: Callable[[str], bytes] = no_file,
) -> Plan:
    """The plan of a document, the inverse of `Plan.to_json`.

    Args:
        value: the document.
        removals: those that were saved beside it.
        path: of the document, for errors.
        read: gives the file of a name that was saved beside it.

    Raises:
        UsageError: not a plan, or of a version that is not known here.
        CorruptFile: fields are missing or of another type, or the removals are not those that the plan was
            written with.
    """
    schema = value.get("schema")
    if schema not in (PLAN_SCHEMA, _FIRST_SCHEMA):
        raise UsageError(f"{path} is not a plan of this version: schema is {schema!r}, not {PLAN_SCHEMA!r}")
    try:
        if schema == _FIRST_SCHEMA:
            value = _from_first(value)
        plan = _parsed(value, removals)
        if (groups := value.get("rewrite")) is not None:
            from iceberg_cli.plan.groups import Groups  # few plans have any

            plan = replace(plan, groups=Groups.from_json(groups, read, path.rpartition("/")[0]))
        recorded = value["removals"]
        same = (
            recorded is None
            or removals is None
            or (recorded["count"], recorded["digest"]) == (removals.count, removals.digest)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CorruptFile(path, None, f"not a plan as it was written: {error!r}") from error
    if not same:
        raise CorruptFile(path, "removals", "count or digest differs from the removals file")
    return plan


def _from_first(value: Mapping[str, Any]) -> dict[str, Any]:
    """A `plan/1` document as `plan/2`."""
    base = value["base"]
    if type(base["last_sequence_number"]) is not int:
        raise TypeError(f"last_sequence_number is {base['last_sequence_number']!r}")
    return {
        **value,
        "base": {**base, "last_sequence_number": str(base["last_sequence_number"])},
        # It does not record which warnings are lasting: none is kept quiet.
        "lasting": value["warnings"],
    }


def _update(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """An update in its wire form; the ids of `plan/1` are numbers already."""
    read = dict(value)
    if SNAPSHOT_IDS in value:
        read[SNAPSHOT_IDS] = [int(snapshot_id) for snapshot_id in value[SNAPSHOT_IDS]]
    if SNAPSHOT_ID in value:
        read[SNAPSHOT_ID] = int(value[SNAPSHOT_ID])
    return read


def _text(value: Mapping[str, Any], name: str) -> str | None:
    """A text that earlier versions did not write; TypeError where it is none."""
    found = value.get(name)
    if not isinstance(found, str | None):
        raise TypeError(f"{name} is {found!r}")
    return found


def _parsed(value: Mapping[str, Any], removals: Removals | None) -> Plan:
    """The plan of a document; KeyError, TypeError, ValueError or AttributeError where it is none."""
    check_shape(value, _SHAPE, "the plan")
    names = [step["name"] for step in value["steps"]]
    if len(set(names)) < len(names):
        raise ValueError(f"two of the steps {names} have one name")
    if value["grace_ms"] < 0:
        raise ValueError(f"grace_ms is {value['grace_ms']}")
    return Plan(
        verb=value["operation"],
        table=value["table"],
        base=_base(value["base"]),
        as_of_ms=value["as_of_ms"],
        options={
            name: Option(value=option["value"], source=option["source"])
            for name, option in value["options"].items()
        },
        policy=dict(value["policy"]),
        verdicts=tuple(_verdict(verdict) for verdict in value["verdicts"]),
        warnings=tuple(value["warnings"]),
        lasting=tuple(value["lasting"]),
        reason=_text(value, "reason"),
        early=_text(value, "offer"),
        blocked_by=tuple(value["blocked_by"]),
        steps=tuple(_step(step) for step in value["steps"]),
        grace_ms=value["grace_ms"],
        removals=removals,
        tagged=_tagged(value.get("tagged")),
        listed=_listed(value.get("listed")),
        difference=_object(value, "difference"),
        undoes=_undoes(value),
    )


def _object(value: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """What only some plans have; TypeError where it is no object."""
    found = value.get(name)
    if not isinstance(found, dict | None):
        raise TypeError(f"{name} is {found!r}")
    return found


def _undoes(value: Mapping[str, Any]) -> Mapping[str, str] | None:
    found = _object(value, "undoes")
    if found is not None:
        check_shape(found, {"operation_id": str, "operation": str}, "the operation that is taken back")
    return found


def _tagged(value: Mapping[str, Any] | None) -> TaggedFiles | None:
    if value is None:
        return None
    check_shape(value, {"count": int, "bytes": int, "tags": dict, "option": str}, "the tagged files")
    return TaggedFiles(
        count=value["count"], size_bytes=value["bytes"], tags=dict(value["tags"]), option=value["option"]
    )


def _listed(value: Mapping[str, Any] | None) -> ListedFiles | None:
    if value is None:
        return None
    check_shape(value, {"files": int, "bytes": int, "folders": [str]}, "the listed files")
    inventory_ms = value.get("inventory_ms")
    if type(inventory_ms) not in (int, type(None)):
        raise TypeError(f"inventory_ms is {inventory_ms!r}")
    return ListedFiles(
        files=value["files"],
        size_bytes=value["bytes"],
        folders=tuple(value["folders"]),
        inventory_ms=inventory_ms,
    )


def _base(value: Mapping[str, Any]) -> Base:
    return Base(
        table_uuid=value["table_uuid"],
        version=value["version"],
        refs={name: int(snapshot_id) for name, snapshot_id in value["refs"].items()},
        last_sequence_number=int(value["last_sequence_number"]),
        next_row_id=None if value["next_row_id"] is None else int(value["next_row_id"]),
    )


def _verdict(value: Mapping[str, Any]) -> Verdict:
    return Verdict(**{name: value[name] for name in ("subject", "id", "keep", "reason", "timestamp_ms")})


def _step(value: Mapping[str, Any]) -> Step:
    change = value["change"]
    return Step(
        name=value["name"],
        requires=value["requires"],
        unconditional=value["unconditional"],
        tasks=tuple(
            Task(name=task["name"], kind=task["kind"], inputs=tuple(task["inputs"]))
            for task in value["tasks"]
        ),
        change=None if change is None else _change(change),
    )


def _change(value: Mapping[str, Any]) -> Change:
    draft = value["draft"]
    return Change(
        updates=tuple(_update(update) for update in value["updates"]),
        draft=None if draft is None else SavedDraft(document=draft),
        counts=dict(value["counts"]),
    )
