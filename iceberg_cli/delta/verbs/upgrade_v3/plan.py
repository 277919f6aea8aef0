"""upgrade-v3 on Delta: one commit of protocol and properties; no file is touched."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.delta.spec.clients import Client
from iceberg_cli.delta.spec.features import new_features, reader_features, unread_features, writer_features
from iceberg_cli.delta.spec.protocol import Protocol
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.upgrade_v3 import rules
from iceberg_cli.delta.verbs.upgrade_v3.policy import VERB_NAME, UpgradeV3
from iceberg_cli.delta.verbs.upgrade_v3.rules import Feature
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.findings import Finding
from iceberg_cli.plan.plan import Change, Option, Plan, Step, Verdict
from iceberg_cli.plan.preflight import Preflight, blocking, info, warning, worst_first
from iceberg_cli.plan.writer_loss import ALLOW_WRITER_LOSS, accepts_loss, loss_reason


class UpgradeV3Verb(Verb):
    """Gives the table features that it lacks."""

    name: Final = VERB_NAME
    policy: Final = UpgradeV3
    result_columns: Final = ("added_features_count", "set_properties_count")

    def plan(
        self,
        table: DeltaTable,
        policy: UpgradeV3,
        *,
        as_of_ms: int,
        within: Plan | None = None,  # noqa: ARG002 - the features are the same on every base
        earlier: Build | None = None,  # noqa: ARG002 - nothing is remembered
    ) -> Planned:
        """One step, unless the table has all of it.

        Raises:
            UsageError: a feature is not known, or not one that a commit of metadata can turn on.
            CorruptFile: a commit cannot be read, or a property makes no sense.
        """
        return Planned(plan=plan_and_changes(table, policy, as_of_ms=as_of_ms)[0])

    def preflight(self, table: DeltaTable, policy: UpgradeV3, *, as_of_ms: int) -> Preflight:
        """All findings on the table as it is now. Raises: see `plan`."""
        plan, changes = plan_and_changes(table, policy, as_of_ms=as_of_ms)
        turned_on = any(not feature.there for feature in changes.features)
        clients = table.clients(new_features(changes.protocol, changes.upgraded))
        return Preflight(
            findings=worst_first(_findings(plan, changes, clients, table=shlex.quote(table.name))),
            table=table.describe(),
            base=plan.base.to_json(),
            target=_target(changes.upgraded),
            nothing_due="" if turned_on else "the table has these features: nothing to upgrade",
        )


VERB: Final = UpgradeV3Verb()


def plan_and_changes(table: DeltaTable, policy: UpgradeV3, *, as_of_ms: int) -> tuple[Plan, Changes]:
    """The plan, and what it follows from. Raises: see `UpgradeV3Verb.plan`."""
    base = table.base()
    changes = changes_of(table, policy)
    plan = Plan(
        verb=VERB_NAME,
        table=table.describe(),
        base=base,
        as_of_ms=as_of_ms,
        options={
            "protocol": Option(value=_versions(changes.protocol), source="the log"),
            "features": Option(value=list(changes.names), source=policy.source_of("features")),
            **policy.chosen_or_none("allow_writer_loss"),
        },
        policy=policy.to_json(),
        verdicts=_verdicts(changes),
        blocked_by=tuple(reason for _, reason in changes.obstacles),
        steps=(_step(changes.features, changes.updates),) if changes.updates else (),
    )
    return table.resolve(plan), changes


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What an upgrade would do to a table, and what stands in its way.

    Args:
        names: of the features that are asked for.
        protocol: the table's.
        upgraded: as it will be.
        features: what is to be done for each, those that others need included.
        updates: the actions of the commit; none where all is there.
        obstacles: see `rules.obstacles`.
    """

    names: tuple[str, ...]
    protocol: Protocol
    upgraded: Protocol
    features: tuple[Feature, ...]
    updates: tuple[Mapping[str, Any], ...]
    obstacles: tuple[tuple[str, str], ...]

    @property
    def extends(self) -> bool:
        """Whether the protocol gets a feature that it does not have."""
        return any(not feature.supported for feature in self.features)


def changes_of(table: DeltaTable, policy: UpgradeV3) -> Changes:
    """Look at the table as loaded last.

    Raises:
        UsageError: a feature is not known, or not one that a commit of metadata can turn on.
        CorruptFile: a commit cannot be read, or a property makes no sense.
    """
    names = rules.requested_features(policy.features)
    protocol, metadata = table.snapshot.protocol, table.snapshot.metadata
    features = rules.features_of(protocol, metadata, names)
    every = [feature.name for feature in features]
    updates = rules.updates_for(protocol, metadata, every)
    return Changes(
        names=names,
        protocol=protocol,
        upgraded=rules.upgraded(protocol, every),
        features=features,
        updates=updates,
        obstacles=rules.obstacles(protocol, metadata, features) if updates else (),
    )


def _versions(protocol: Protocol) -> str:
    return f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"


def _verdicts(changes: Changes) -> tuple[Verdict, ...]:
    requested = [
        Verdict(subject="feature", id=feature.name, keep=feature.there, reason=reason_of(feature))
        for feature in changes.features
    ]
    if not changes.extends:
        return tuple(requested)
    names = {feature.name for feature in changes.features}
    reasons_by_name = dict.fromkeys(
        sorted(unread_features(changes.protocol)),
        "it is listed for writers only: readers are told of it too",
    )
    reasons_by_name |= dict.fromkeys(
        rules.written_out(changes.protocol), f"{_versions(changes.protocol)} stands for it: it is written out"
    )
    return (
        *requested,
        *(
            Verdict(subject="feature", id=name, keep=True, reason=reason)
            for name, reason in reasons_by_name.items()
            if name not in names
        ),
    )


def reason_of(feature: Feature) -> str:
    """What is to be done for a feature, in words."""
    parts = ["the table has it" if feature.supported else "it is added"]
    if feature.needed_by:
        parts.append(f"{feature.needed_by} needs it")
    offered = rules.OFFERED[feature.name]
    parts += [
        f"{name}={offered[name]} turns it on" + ("" if now is None else f", it is {now}")
        for name, now in feature.properties.items()
        if name in offered
    ]
    if feature.name == "rowTracking" and not feature.supported:
        parts.append("supported only: assign-row-ids enables it")
        parts += [
            f"{name} is {now}, it is set to false until then" for name, now in feature.properties.items()
        ]
    return "; ".join(parts)


def _step(features: Sequence[Feature], updates: tuple[Mapping[str, Any], ...]) -> Step:
    counts = {
        "added_features_count": sum(not feature.supported for feature in features),
        "set_properties_count": sum(len(feature.properties) for feature in features),
    }
    return Step(name=VERB_NAME, change=Change(updates=updates, counts=counts))


def _target(protocol: Protocol) -> dict[str, Any]:
    return {
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "features": sorted(reader_features(protocol) | writer_features(protocol)),
    }


def _findings(plan: Plan, changes: Changes, clients: Iterable[Client], *, table: str) -> Iterator[Finding]:
    properties, protocol, features, history = (
        f"iceberg-cli inspect {table} {what}" for what in ("properties", "protocol", "features", "history")
    )
    for rule, reason in changes.obstacles:
        yield blocking(rule, "table", reason, properties)
    reported = {reason for _, reason in changes.obstacles}
    for client in clients:
        make, rule, remedy = warning, "client-lacks-features", history
        if client.lacks is None:
            rule = "client-unknown"
        elif not client.lacks:
            make, rule = info, "client-knows-features"
        elif client.wrote_last and not accepts_loss(plan.policy, client.name):
            make = blocking
            remedy = f"iceberg-cli upgrade-v3 {table} {shlex.join([ALLOW_WRITER_LOSS, client.name])}"
        yield make(rule, client.name, f"it wrote version {client.version}; {client.reason}", remedy)
        reported |= {f"{client.name}: {client.reason}", loss_reason(client.name, client.reason)}
    for reason in plan.blocked_by:
        if reason not in reported:
            yield blocking("upgrade-refused", "table", reason, protocol)
    for feature in changes.features:
        rule = "feature-kept" if feature.there else "feature-turned-on"
        yield info(rule, f"feature {feature.name}", reason_of(feature), features)
    for text in plan.warnings:
        if text not in reported:
            yield warning("passed-over", "log", text, f"iceberg-cli inspect {table} --check")
