"""upgrade-v3 on Delta: one commit of protocol and properties; no file is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from iceberg_cli.delta import upgrade as rules
from iceberg_cli.delta.feature_clients import lacking_features, told, writers_of
from iceberg_cli.delta.features import unread_features
from iceberg_cli.delta.policies import UpgradePolicy
from iceberg_cli.delta.protocol import Protocol
from iceberg_cli.delta.upgrade import Feature
from iceberg_cli.delta_table import DeltaTable
from iceberg_cli.plan import Change, Option, Plan, Staged, Step, Task, Verdict

OPERATION: Final = "upgrade-v3"
_LOOKED_AT: Final = 20  # newest commits in which writers are looked for


class UpgradeV3:
    """Gives the table features that it lacks."""

    operation: Final = OPERATION
    columns: Final = ("added_features_count", "set_properties_count")

    def plan(
        self,
        table: DeltaTable,
        policy: Mapping[str, Any],
        *,
        as_of_ms: int,
        shown: Plan | None = None,  # noqa: ARG002 - the features are the same on every base
    ) -> Plan:
        """One step, unless the table has all of it.

        Raises:
            UsageError: a feature is not known, or not one that a commit of metadata can turn on.
            CorruptFile: a commit cannot be read, or a property makes no sense.
        """
        asked = UpgradePolicy.from_json(policy)
        names = rules.asked_features(asked.features)
        base = table.load()
        protocol, metadata = table.snapshot.protocol, table.snapshot.metadata
        features = rules.features_of(protocol, metadata, names)
        every = [feature.name for feature in features]
        updates = rules.updates_for(protocol, metadata, every)
        new = [feature.name for feature in features if not feature.supported]
        clients = _clients(table, new)
        source = "--feature" if asked.features else "default"
        plan = Plan(
            operation=OPERATION,
            table=table.describe(),
            base=base,
            as_of_ms=as_of_ms,
            options={
                "protocol": Option(value=_versions(protocol), source="the log"),
                "features": Option(value=list(names), source=source),
            },
            policy=asked.to_json(),
            verdicts=(*_verdicts(protocol, features, extended=bool(new)), *_told(clients)),
            warnings=tuple(f"{name}: {told(lost)}" for name, (_, lost) in clients.items() if lost),
            blocked_by=rules.blocked_by(protocol, metadata, features) if updates else (),
            steps=(_step(features, updates),) if updates else (),
        )
        return table.resolve(table.blocked(plan))

    def build(self, table: DeltaTable, step: Step, paths: Mapping[Task, str]) -> Mapping[Task, Staged]:  # noqa: ARG002
        """Nothing: there are no files."""
        return {}


VERB: Final = UpgradeV3()


def _versions(protocol: Protocol) -> str:
    return f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"


def _verdicts(protocol: Protocol, features: Sequence[Feature], *, extended: bool) -> tuple[Verdict, ...]:
    asked = [
        Verdict(subject="feature", id=feature.name, keep=feature.there, reason=_reason(feature))
        for feature in features
    ]
    if not extended:
        return tuple(asked)
    names = {feature.name for feature in features}
    told = dict.fromkeys(
        sorted(unread_features(protocol)), "it is listed for writers only: readers are told of it too"
    )
    told |= dict.fromkeys(
        rules.written_out(protocol), f"{_versions(protocol)} stands for it: it is written out"
    )
    return (
        *asked,
        *(
            Verdict(subject="feature", id=name, keep=True, reason=reason)
            for name, reason in told.items()
            if name not in names
        ),
    )


def _told(clients: Mapping[str, tuple[int, list[str] | None]]) -> tuple[Verdict, ...]:
    return tuple(
        Verdict(subject="client", id=name, keep=True, reason=f"it wrote version {version}; {told(lost)}")
        for name, (version, lost) in clients.items()
    )


def _reason(feature: Feature) -> str:
    parts = ["the table has it" if feature.supported else "it is added"]
    if feature.needed_by:
        parts.append(f"{feature.needed_by} needs it")
    wanted = rules.OFFERED[feature.name]
    parts += [
        f"{name}={wanted[name]} turns it on" + ("" if now is None else f", it is {now}")
        for name, now in feature.properties.items()
        if name in wanted
    ]
    if feature.name == "rowTracking" and not feature.supported:
        parts.append("supported only: assign-row-ids enables it")
        parts += [
            f"{name} is {now}, it is set to false until then" for name, now in feature.properties.items()
        ]
    return "; ".join(parts)


def _clients(table: DeltaTable, new: Sequence[str]) -> dict[str, tuple[int, list[str] | None]]:
    """Who wrote lately, with the last version that is theirs, and which of the new features they lack."""
    listing = table.log.listing()
    versions = [file.version for file in listing.commits[-_LOOKED_AT:]]
    if not new or not versions:
        return {}
    last = versions[-1]
    # Of a log that was cleaned up, commits may be left that do not follow each other.
    first = next(
        v for v, place in zip(versions, range(len(versions), 0, -1), strict=True) if v == last + 1 - place
    )
    infos = table.log.commits(first, last, listing=listing).commit_infos
    return {name: (version, lacking_features(name, new)) for name, version in writers_of(infos).items()}


def _step(features: Sequence[Feature], updates: tuple[Mapping[str, Any], ...]) -> Step:
    counts = {
        "added_features_count": sum(not feature.supported for feature in features),
        "set_properties_count": sum(len(feature.properties) for feature in features),
    }
    return Step(name=OPERATION, change=Change(updates=updates, counts=counts))
