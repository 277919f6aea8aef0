"""upgrade-v3 on Delta: what stands in the way of new table features, and what will be different then, as findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from iceberg_cli.delta.spec.features import reader_features, writer_features
from iceberg_cli.delta.spec.protocol import Protocol
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.policies import UpgradePolicy
from iceberg_cli.delta.verbs.upgrade_v3.clients import client_reason
from iceberg_cli.delta.verbs.upgrade_v3.plan import Changes, plan_and_changes, reason_of
from iceberg_cli.plan.plan import Plan
from iceberg_cli.plan.preflight import Finding, Preflight, blocking, info, warning, worst_first


def preflight(table: DeltaTable, policy: UpgradePolicy, *, as_of_ms: int) -> Preflight:
    """All findings on the table as it is now.

    Raises:
        UsageError: a feature is not known, or not one that a commit of metadata can turn on.
        CorruptFile: a commit cannot be read, or a property makes no sense.
    """
    plan, changes = plan_and_changes(table, policy, as_of_ms=as_of_ms)
    return Preflight(
        findings=worst_first(_findings(plan, changes, table=shlex.quote(table.name))),
        table=table.describe(),
        base=plan.base.to_json(),
        target=_target(changes.upgraded),
    )


def _target(protocol: Protocol) -> dict[str, Any]:
    return {
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "features": sorted(reader_features(protocol) | writer_features(protocol)),
    }


def _findings(plan: Plan, changes: Changes, *, table: str) -> Iterator[Finding]:
    properties, protocol, features, history = (
        f"iceberg-cli inspect {table} {what}" for what in ("properties", "protocol", "features", "history")
    )
    for rule, reason in changes.obstacles:
        yield blocking(rule, "table", reason, properties)
    obstacles = {reason for _, reason in changes.obstacles}
    for reason in plan.blocked_by:
        if reason not in obstacles:
            yield blocking("upgrade-refused", "table", reason, protocol)
    for feature in changes.features:
        rule = "feature-kept" if feature.there else "feature-turned-on"
        yield info(rule, f"feature {feature.name}", reason_of(feature), features)
    of_clients = set()
    for name, (version, unknown_features) in changes.clients.items():
        message = f"it wrote version {version}; {client_reason(unknown_features)}"
        of_clients.add(f"{name}: {client_reason(unknown_features)}")
        if unknown_features is None:
            yield warning("client-unknown", name, message, history)
        elif unknown_features:
            yield warning("client-lacks-features", name, message, history)
        else:
            yield info("client-knows-features", name, message, history)
    for text in plan.warnings:
        if text not in of_clients:
            yield warning("passed-over", "log", text, f"iceberg-cli inspect {table} --check")
