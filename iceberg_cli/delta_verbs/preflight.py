"""upgrade-v3 on Delta: what stands in the way of new table features, and what will be different then, as findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from iceberg_cli.delta.feature_clients import told
from iceberg_cli.delta.features import reader_features, writer_features
from iceberg_cli.delta.policies import UpgradePolicy
from iceberg_cli.delta.protocol import Protocol
from iceberg_cli.delta_table import DeltaTable
from iceberg_cli.delta_verbs.upgrade_v3 import VERB, Looked, look, reason_of
from iceberg_cli.plan import Plan
from iceberg_cli.preflight_findings import (
    BLOCKING,
    INFO,
    WARNING,
    Finding,
    Preflight,
    blocking,
    info,
    warning,
)


def preflight(table: DeltaTable, asked: UpgradePolicy, *, as_of_ms: int) -> Preflight:
    """All findings on the table as it is now.

    Raises:
        UsageError: a feature is not known, or not one that a commit of metadata can turn on.
        CorruptFile: a commit cannot be read, or a property makes no sense.
    """
    plan = VERB.plan(table, asked.to_json(), as_of_ms=as_of_ms)
    looked = look(table, asked)
    found = _findings(plan, looked, table=shlex.quote(table.name))
    return Preflight(
        findings=tuple(sorted(found, key=lambda each: (BLOCKING, WARNING, INFO).index(each.severity))),
        table=table.describe(),
        base=plan.base.to_json(),
        target=_target(looked.upgraded),
    )


def _target(protocol: Protocol) -> dict[str, Any]:
    return {
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "features": sorted(reader_features(protocol) | writer_features(protocol)),
    }


def _findings(plan: Plan, looked: Looked, *, table: str) -> Iterator[Finding]:
    properties, protocol, features, history = (
        f"iceberg-cli inspect {table} {what}" for what in ("properties", "protocol", "features", "history")
    )
    for rule, reason in looked.obstacles:
        yield blocking(rule, "table", reason, properties)
    obstacles = {reason for _, reason in looked.obstacles}
    for reason in plan.blocked_by:
        if reason not in obstacles:
            yield blocking("upgrade-refused", "table", reason, protocol)
    for feature in looked.features:
        rule = "feature-kept" if feature.there else "feature-turned-on"
        yield info(rule, f"feature {feature.name}", reason_of(feature), features)
    of_clients = set()
    for name, (version, lacking) in looked.clients.items():
        message = f"it wrote version {version}; {told(lacking)}"
        of_clients.add(f"{name}: {told(lacking)}")
        if lacking is None:
            yield warning("client-unknown", name, message, history)
        elif lacking:
            yield warning("client-lacks-features", name, message, history)
        else:
            yield info("client-knows-features", name, message, history)
    for text in plan.warnings:
        if text not in of_clients:
            yield warning("passed-over", "log", text, f"iceberg-cli inspect {table} --check")
