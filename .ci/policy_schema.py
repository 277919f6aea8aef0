"""The JSON Schema of policy files, made from the options of the verbs' policies."""

from __future__ import annotations

import json
from typing import Any

from iceberg_cli.fleet.policy_file import SHORT_RETENTION, WHEN
from iceberg_cli.fleet.policy_schema import thresholds_of
from iceberg_cli.formats import maintenance_verbs, policies_of
from iceberg_cli.plan.option_kinds import Factor
from iceberg_cli.plan.policy import (
    Choice,
    Duration,
    Id,
    Kind,
    Moment,
    PolicyOption,
    Selection,
    Several,
    Size,
    Switch,
    Switches,
    VersionRange,
    Whole,
)


def policy_schema() -> str:
    """The schema as text."""
    verbs = {verb: _verb_schema(verb) for verb in maintenance_verbs()}
    window = {
        "description": "When work on a table may begin: the days on which it opens, and the times in a zone.",
        "type": "object",
        "properties": {
            "days": {
                "description": 'Such as ["mon-fri", "sun"]; without it, every day.',
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
            },
            "from": {"description": 'Such as "01:00".', "type": "string"},
            "to": {
                "description": 'Such as "05:00", or "24:00"; before from: on the next day.',
                "type": "string",
            },
            "zone": {"description": "Of the IANA database, such as Europe/Berlin.", "type": "string"},
        },
        "required": ["from", "to", "zone"],
        "additionalProperties": False,
    }
    names = {"type": "array", "items": {"type": "string"}}
    entry = {
        "type": "object",
        "properties": {
            "match": {
                "description": "Patterns of tables: prod.sales.*, s3://lake/events/*.", **names, "minItems": 1,
            },
            "except": {"description": "Patterns of tables that are not meant.", **names},
            "maintain": {"description": "false: nothing runs on them.", "type": "boolean"},
            "reason": {"description": "Why they are not maintained.", "type": "string"},
            "window": window,
            "unsafe": {
                "description": "short-retention: the policy may keep less than the table's properties ask for.",
                "type": "array",
                "items": {"enum": [SHORT_RETENTION]},
            },
            **verbs,
        },
        "required": ["match"],
        "additionalProperties": False,
    }  # fmt: skip
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "iceberg-cli/policy/1",
        "title": "A policy file: what maintenance may do to which tables",
        "type": "object",
        "properties": {
            "version": {"const": 1},
            "defaults": {
                "description": "What holds for every table that an entry of tables matches.",
                "type": "object",
                "properties": {"window": window, **verbs},
                "additionalProperties": False,
            },
            "tables": {
                "description": "The tables that are meant; what a later entry has replaces that of an earlier one.",
                "type": "array",
                "items": entry,
                "minItems": 1,
            },
        },
        "required": ["version", "tables"],
        "additionalProperties": False,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _verb_schema(verb: str) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "when": {"description": "due: where it has enough to do; without it, due.", "enum": list(WHEN)}
    }
    for name, (kind, text) in thresholds_of(verb).items():
        properties[name] = {"description": text, **_written(kind)}
    for policy in policies_of(verb).values():
        for option in policy.options():
            for flag, text in option.help_of.items():
                if not (option.not_in_policy_files or flag.startswith("--unsafe-")):
                    key = flag.removeprefix("--")
                    properties.setdefault(key, {"description": text, **_values_of(option)})
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _values_of(option: PolicyOption) -> dict[str, Any]:
    return {"type": "boolean"} if isinstance(option.kind, Switches) else _written(option.kind)


def _written(kind: Kind) -> dict[str, Any]:
    """The schema of a kind's values as a file spells them."""
    match kind:
        case Several(each=each):
            one = _written(each)
            types = [one["type"]] if isinstance(one["type"], str) else one["type"]
            return {**one, "type": ["array", *types], "items": one}
        case Selection(values=values):
            return {"type": ["array", "string"], "items": {"enum": list(values)}}
        case Id():
            return {"type": ["integer", "string"]}
        case Size():
            return {"type": ["string", "integer"]}
        case Factor():
            return {"type": ["number", "string"]}
        case Whole() | Switch() | Choice():
            return kind.schema()
        case Moment():
            return {"type": ["string", "integer"]}
        case Duration() | VersionRange():
            return {"type": "string"}
        case _:
            return kind.schema()
