"""Policies from some of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from iceberg_cli.plan.policy import Policy


def policy_with(kind: type[Policy], given: Mapping[str, Any]) -> Policy:
    """The policy with these fields in JSON form, and its defaults for the others."""
    return kind.from_json({**kind().to_json(), **given})
