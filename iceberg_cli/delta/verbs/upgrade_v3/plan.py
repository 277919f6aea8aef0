"""upgrade-v3 on Delta: one commit of protocol and properties; no file is touched."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.delta.spec.features import reader_features, unread_features, writer_features
from iceberg_cli.delta.spec.protocol import Protocol
from iceberg_cli.delta.table import DeltaTable
from iceberg_cli.delta.verbs.upgrade_v3 import rules
from iceberg_cli.delta.verbs.upgrade_v3.policy import VERB_NAME, UpgradeV3
from iceberg_cli.delta.verbs.upgrade_v3.rules import Feature, client_reason, missing_features, writers_of
from iceberg_cli.operation.ports import Build, Planned, Verb
from iceberg_cli.plan.findings import Finding
from iceberg_cli.plan.plan import Change, Option, Plan, Step, Verdict
from iceberg_cli.plan.preflight import Preflight, blocking, info, warning, worst_first

_CLIENT_COMMITS: Final = 20  # newest commits in which writers are looked for


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
        return Preflight(
            findings=worst_first(_findings(plan, changes, table=shlex.quote(table.name))),
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
        },
        policy=policy.to_json(),
        verdicts=(*_verdicts(changes), *_client_verdicts(changes.clients)),
        warnings=tuple(
            f"{name}: {client_reason(lost)}" for name, (_, lost) in changes.clients.items() if lost
        ),
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
        clients: who wrote lately, with the last version that is theirs, and which of the new features they lack.
    """

    names: tuple[str, ...]
    protocol: Protocol
    upgraded: Protocol
    features: tuple[Feature, ...]
    updates: tuple[Mapping[str, Any], ...]
    obstacles: tuple[tuple[str, str], ...]
    clients: Mapping[str, tuple[int, list[str] | None]]

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
        clients=_clients(table, [feature.name for feature in features if not feature.supported]),
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
        sorted(unread_features(changes.protocol)), "it is listed for writers only: readers are told of it too"
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


def _client_verdicts(clients: Mapping[str, tuple[int, list[str] | None]]) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(
            subject="client",
            id=name,
            keep=True,
            reason=f"it wrote version {version}; {client_reason(lost)}",
        )
        for name, (version, lost) in clients.items()
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


def _clients(table: DeltaTable, new: Sequence[str]) -> dict[str, tuple[int, list[str] | None]]:
    """Who wrote lately, with the last version that is theirs, and which of the new features they lack."""
    listing = table.snapshot.listing
    versions = [file.version for file in listing.commits[-_CLIENT_COMMITS:]]
    if not new or not versions:
        return {}
    last = versions[-1]
    # Of a log that was cleaned up, commits may be left that do not follow each other.
    first = next(
        v
        for v, distance in zip(versions, range(len(versions), 0, -1), strict=True)
        if v == last + 1 - distance
    )
    infos = table.log.commits(first, last, listing=listing).commit_infos
    return {name: (version, missing_features(name, new)) for name, version in writers_of(infos).items()}


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
