"""Findings about format version 3: what obstructs an upgrade, and what will be different after it.

What the writers that snapshot summaries name support of it is as of a date. Apache Iceberg's library was measured in
1.11 and 1.12; that deletion vectors came with 1.8 and row ids with 1.10 was not. Trino's release notes name deletes in
version 3 tables for 480, and row ids for no release up to 481.

Spec: Appendix E; "Row Lineage for Upgraded Tables".
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from iceberg_cli.iceberg.spec.table_metadata.metadata import Snapshot, TableMetadata
from iceberg_cli.iceberg.spec.table_metadata.snapshot import BRANCH, MAIN, TAG
from iceberg_cli.iceberg.spec.types.transforms import parse
from iceberg_cli.iceberg.verbs.upgrade_v3.rules import (
    TARGET,
    PreflightReads,
    ids_of,
    obstructing,
    some,
)
from iceberg_cli.plan.findings import WARNING, Finding
from iceberg_cli.plan.preflight import BLOCKING, blocking, info, warning, worst_first
from iceberg_cli.plan.text import count
from iceberg_cli.plan.writer_loss import ALLOW_WRITER_LOSS, accepts_loss

_DAY_MS: Final = 86_400_000
_LATELY_MS: Final = 30 * _DAY_MS
_SHOWN: Final = 5
_RARE_TYPES: Final = ("variant", "geometry", "geography", "unknown", "timestamp_ns", "timestamptz_ns")
_ENCRYPTION: Final = "encryption.key-id"
_IN_SQL: Final = "<catalog.db.table>"  # how an engine names the table is not known here
_COPY: Final = "CREATE TABLE copy AS SELECT * FROM <catalog.db.table>"
_AS_OF: Final = "2026-05"  # of what is said here of writers
# Its error is that the required sequence_number is null; a manifest list of version 1 has none, which stands for 0.
_NO_V1_LISTS: Final = "DuckDB 1.5"
_NO_V1_LISTS_AS_OF: Final = "1.5.5, 2026-11"
_UNNAMED: Final = "an unnamed writer"
_READS, _PARTLY, _NOT, _UNKNOWN = "reads", "partly", "not", "unknown"

_LIBRARY: Final = re.compile(r"Apache Iceberg (\d+)\.(\d+)")
_NUMBER: Final = re.compile(r"\d+")
_LIBRARY_PARTLY: Final = (1, 8)
_LIBRARY_READS: Final = (1, 10)
_TRINO_PARTLY: Final = 480  # it has readers of its own, so its library decides nothing


def findings(
    metadata: TableMetadata,
    looked: PreflightReads,
    *,
    table: str,
    as_of_ms: int,
    repaired: frozenset[int] = frozenset(),
    policy: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Finding, ...]:
    """All findings, the blocking ones first. Of a table that has the version, those that still hold; none blocks.

    Args:
        metadata: the table's.
        looked: what was read for it.
        table: how the commands name it, before quoting.
        as_of_ms: the "now" of "lately", in ms since the epoch.
        repaired: snapshots that are replaced or expired before the table is upgraded.
        policy: the upgrade's, in its JSON form.
    """
    preflight = _Preflight(
        metadata=metadata,
        looked=looked,
        table=shlex.quote(table),
        as_of_ms=as_of_ms,
        repaired=repaired,
        policy=policy,
    )
    lasting: Sequence[Callable[[], Iterable[Finding]]] = (
        preflight.obstacles,
        preflight.unknown_requirements,
        preflight.deletes,
        preflight.without_ids,
        preflight.lists_of_v1,
        preflight.oddities,
    )
    before: Sequence[Callable[[], Iterable[Finding]]] = (
        preflight.encryption,
        preflight.writers,
        preflight.rare_features,
    )
    found = [finding for rule in lasting for finding in rule()]
    if preflight.upgraded:
        found = [replace(each, severity=WARNING) if each.severity == BLOCKING else each for each in found]
    else:
        found += [finding for rule in before for finding in rule()]
    return worst_first(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Preflight:
    metadata: TableMetadata
    looked: PreflightReads
    table: str
    as_of_ms: int
    repaired: frozenset[int]
    policy: Mapping[str, Any]

    @property
    def upgraded(self) -> bool:
        """Whether the table has format version 3 already."""
        return self.metadata.format_version >= TARGET

    def obstacles(self) -> Iterable[Finding]:
        obstacles = {
            k: v for k, v in obstructing(self.metadata, self.looked).items() if k not in self.repaired
        }
        inline = [
            i for i in obstacles if (s := self.metadata.snapshot(i)) is not None and s.manifest_list is None
        ]
        uncounted = [i for i in obstacles if i not in inline]
        remedy = f"iceberg-cli upgrade-v3 {self.table} --with repair-manifests"
        after = (
            "version 2 and later have no place for that, and Iceberg's Java library cannot write on top of it"
        )
        if inline:
            message = f"{count(len(inline), 'snapshots')} without a manifest list: {ids_of(inline)}; {after}"
            yield blocking("inline-manifests", self._refs_of(inline), message, remedy)
        if uncounted:
            message = (
                f"{count(len(uncounted), 'snapshots')} whose manifest list lacks counts: {ids_of(uncounted)}; "
                + after
            )
            yield blocking("uncounted-manifests", self._refs_of(uncounted), message, remedy)
        missing = [s.snapshot_id for s in self.metadata.snapshots if s.snapshot_id in self.looked.missing]
        if missing:
            message = f"{count(len(missing), 'snapshots')} whose manifest list is gone: {ids_of(missing)}"
            yield warning(
                "missing-manifest-list", self._refs_of(missing), message, self._without_lists(missing)
            )

    def encryption(self) -> Iterable[Finding]:
        metadata = self.metadata
        signs = []
        if metadata.encryption_keys:
            signs.append(count(len(metadata.encryption_keys), "encryption keys"))
        with_key = [snapshot for snapshot in metadata.snapshots if snapshot.key_id is not None]
        if with_key:
            signs.append(f"{count(len(with_key), 'snapshots')} with a key-id")
        if _ENCRYPTION in metadata.properties:
            signs.append(f"table property {_ENCRYPTION}")
        encrypted = sum(facts.encrypted for facts in self.looked.lists.values())
        if encrypted:
            signs.append(count(encrypted, "encrypted manifests"))
        if signs:
            message = f"the table is encrypted ({', '.join(signs)}); its keys cannot be carried over here"
            yield blocking("encryption-keys", "table", message, _COPY)

    def unknown_requirements(self) -> Iterable[Finding]:
        for schema in self.metadata.schemas:
            if types := schema.unknown_types():
                message = f"types that version 3 does not have: {', '.join(types)}"
                yield blocking(
                    "unknown-type", f"schema {schema.schema_id}", message, self._inspect("schemas")
                )
        for spec in self.metadata.partition_specs:
            if unknown := [each.transform for each in spec.fields if not _is_known(each.transform)]:
                default = spec.spec_id == self.metadata.default_spec_id
                message = f"partition transforms that version 3 does not have: {', '.join(unknown)}; " + (
                    "nobody may write with them" if default else "readers ignore them"
                )
                make = blocking if default else warning
                remedy = (
                    f"ALTER TABLE {_IN_SQL} DROP PARTITION FIELD ..." if default else self._inspect("specs")
                )
                yield make("unknown-transform", f"partition spec {spec.spec_id}", message, remedy)
        v1 = {"schema", "partition-spec"} if self.metadata.format_version == 1 else set()
        if unknown := sorted(self.metadata.extra.keys() - v1):
            message = f"fields that the specification does not have, and that stay as they are: {', '.join(unknown)}"
            yield info("unknown-field", "metadata", message, self._inspect("summary"))

    def writers(self) -> Iterable[Finding]:
        """The writers of the last 30 days; where there are none, the last one.

        What the last one cannot write to any more is not upgraded before the operator accepts that.
        """
        snapshots = sorted(self.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
        lately = [s for s in snapshots if s.timestamp_ms >= self.as_of_ms - _LATELY_MS]
        counts: dict[Writer, int] = {}
        for snapshot in lately or snapshots[-1:]:
            writer = writer_of(snapshot.summary)
            counts[writer] = counts.get(writer, 0) + 1
        by_number = sorted(counts.items(), key=lambda item: (-item[1], item[0].name))
        when = " in the last 30 days" if lately else ", the last of all"
        made = [
            (writer, f"{writer.name} made {count(number, 'snapshots')}{when}") for writer, number in by_number
        ]
        named = [writer for s in snapshots if (writer := writer_of(s.summary)).name != _UNNAMED]
        last = named[-1] if named else None
        if last is not None and last not in counts:
            made.append((last, f"{last.name} made the last snapshot that names its writer"))
        for writer, what in made:
            make, id_ = {
                _READS: (info, "writer-reads-v3"),
                _PARTLY: (warning, "writer-reads-v3-partly"),
                _NOT: (warning, "writer-without-v3"),
            }.get(writer.support, (warning, "writer-unknown"))
            message, remedy = f"{what}: {writer.why} ({_AS_OF})", self._inspect("snapshots")
            if writer == last and writer.support == _NOT and not accepts_loss(self.policy, writer.name):
                make, message = blocking, f"{message}; it wrote last"
                remedy = f"iceberg-cli upgrade-v3 {self.table} {shlex.join([ALLOW_WRITER_LOSS, writer.name])}"
            yield make(id_, writer.name, message, remedy)

    def deletes(self) -> Iterable[Finding]:
        for name, snapshot in self._heads():
            facts = self.looked.lists.get(snapshot.snapshot_id)
            where = f"branch {name}"
            equality, positions = (
                snapshot.summary_count(f"total-{kind}-deletes") for kind in ("equality", "position")
            )
            files = facts.delete_files if facts is not None else None
            if equality:
                message = f"{count(equality, 'equality deletes')}: rows that they replace get new row ids"
                options = "options => map('delete-file-threshold', '1')"
                remedy = f"CALL system.rewrite_data_files(table => '{_IN_SQL}', {options})"
                yield warning("equality-deletes", where, message, remedy)
            kind = "delete files"
            if facts is not None and facts.position_files is not None:
                files, positions, kind = facts.position_files, facts.positions, "position delete files"
            if positions or (files and not equality):
                known = "" if positions is None else f" of {count(positions, 'positions')}"
                message = (
                    f"{count(files, kind) if files else kind}{known}: they stay valid, and readers "
                    "apply them beside deletion vectors until they are merged"
                )
                if name == MAIN:
                    remedy = self._recipe("merge-dvs")
                else:
                    message += "; merge-dvs does main only"
                    remedy = f"{self._inspect('deletes')} --ref {shlex.quote(name)}"
                yield warning("position-deletes", where, message, remedy)

    def without_ids(self) -> Iterable[Finding]:
        """Rows and snapshots without row ids. Spec: "Row Lineage for Upgraded Tables"."""
        lists = [self.looked.lists.get(snapshot.snapshot_id) for _, snapshot in self._heads()]
        rows = [facts.rows_without_ids for facts in lists if facts is not None and facts.rows_without_ids]
        each = ", counted once per branch," if len(rows) > 1 else ""
        message = (
            f"{count(sum(rows), 'rows')} of {count(len(rows), 'branches')}{each} read without row ids "
            "until the next commit to their branch"
        )
        if rows:
            yield warning("rows-without-ids", "branches", message, self._recipe("assign-row-ids"))
        old = {s.snapshot_id for s in self.metadata.snapshots if s.first_row_id is None}
        if not old:
            return
        tags = [
            name for name, ref in self.metadata.refs.items() if ref.type == TAG and ref.snapshot_id in old
        ]
        held = f" and {count(len(tags), 'tags')} ({some(tags)})" if tags else ""
        message = f"{count(len(old), 'snapshots')}{held} from before read without row ids for good"
        yield warning("snapshots-without-ids", "snapshots", message, self._expire([]))

    def lists_of_v1(self) -> Iterable[Finding]:
        """Heads that were committed in version 1, whose lists have no sequence numbers: Java and PyIceberg read 0."""
        old = [
            name
            for name, snapshot in self._heads()
            if snapshot.sequence_number == 0 and snapshot.snapshot_id not in self.repaired
            if (facts := self.looked.lists.get(snapshot.snapshot_id)) is not None and facts.data_manifests
        ]
        if old:
            message = (
                f"{_NO_V1_LISTS} cannot read {count(len(old), 'branches')} ({some(old)}) in version 3 until "
                "row ids are assigned or somebody commits there: the manifest list is of version 1 "
                f"({_NO_V1_LISTS_AS_OF})"
            )
            yield warning("v1-manifest-lists", "branches", message, self._recipe("assign-row-ids"))

    def rare_features(self) -> Iterable[Finding]:
        schema = self.metadata.current_schema()
        texts = [type_ for type_ in schema.types_by_id().values() if isinstance(type_, str)]
        if rare := sorted({text for text in texts if text.partition("(")[0] in _RARE_TYPES}):
            message = f"few engines read the types {', '.join(rare)}"
            yield warning("rare-type", f"schema {schema.schema_id}", message, self._inspect("schemas"))
        defaults = [each.name for each in schema.fields if each.initial_default is not None]
        if defaults:
            message = f"few engines fill in initial defaults, which {some(defaults)} have"
            yield warning("default-values", f"schema {schema.schema_id}", message, self._inspect("schemas"))
        several = [
            f"partition spec {spec.spec_id}"
            for spec in self.metadata.partition_specs
            if any(len(each.source_ids) > 1 for each in spec.fields)
        ]
        if several:
            message = "few engines know transforms of several columns"
            yield warning("multi-argument-transform", ", ".join(several), message, self._inspect("specs"))
        modes = [f"write.{verb}.mode" for verb in ("delete", "update", "merge")]
        merging = [name for name in modes if self.metadata.properties.get(name) == "merge-on-read"]
        if merging:
            message = (
                f"deletes are written as deletion vectors from then on ({', '.join(merging)}=merge-on-read)"
            )
            yield info("deletion-vectors", "properties", message, self._inspect("properties"))

    def oddities(self) -> Iterable[Finding]:
        metadata = self.metadata
        if self.upgraded:
            message = f"the table has format version {metadata.format_version}: nothing to upgrade"
            yield info("already-v3", "table", message, self._inspect("summary"))
        if metadata.table_uuid is None:
            message = "the table has no UUID and gets one"
            yield info("no-table-uuid", "table", message, self._inspect("summary"))
        meanings: dict[int, set[tuple[int, ...]]] = {}
        for spec in metadata.partition_specs:
            for each in spec.fields:
                meanings.setdefault(each.field_id, set()).add(each.source_ids)
        if several := [field_id for field_id, sources in meanings.items() if len(sources) > 1]:
            message = f"partition field ids that mean different columns in different specs: {ids_of(several)}"
            yield warning("partition-field-ids", "partition specs", message, self._inspect("specs"))

    def _heads(self) -> Iterable[tuple[str, Snapshot]]:
        for name, ref in self.metadata.refs.items():
            snapshot = self.metadata.snapshot(ref.snapshot_id)
            if ref.type == BRANCH and snapshot is not None:
                yield name, snapshot

    def _refs_of(self, ids: Iterable[int]) -> str:
        chosen = set(ids)
        names = [
            f"{ref.type} {name}" for name, ref in self.metadata.refs.items() if ref.snapshot_id in chosen
        ]
        return some(names) or "snapshots"

    def _inspect(self, what: str) -> str:
        return f"iceberg-cli inspect {self.table} {what}"

    def _without_lists(self, missing: Sequence[int]) -> str:
        """The way out where manifest lists are gone: a snapshot that a ref names is not expired before that goes."""
        held = [(name, ref) for name, ref in self.metadata.refs.items() if ref.snapshot_id in set(missing)]
        steps, restored = [], set()
        for name, ref in held:
            if name != MAIN:
                steps.append(f"ALTER TABLE {_IN_SQL} DROP {ref.type.upper()} `{name}`")
            elif (ancestor := self._readable_ancestor(ref.snapshot_id, missing)) is not None:
                steps.append(
                    f"CALL system.rollback_to_snapshot(table => '{_IN_SQL}', snapshot_id => {ancestor})"
                )
            else:
                head = self.metadata.snapshot(ref.snapshot_id)
                steps.append(f"restore {'' if head is None else head.manifest_list} from a backup")
                restored.add(ref.snapshot_id)
        expired = [each for each in missing if each not in restored]
        return "; then ".join([*steps, *([self._expire(expired)] if expired else [])])

    def _readable_ancestor(self, snapshot_id: int, missing: Sequence[int]) -> int | None:
        """The newest snapshot before this one whose manifest list is there; None: there is none."""
        snapshot = self.metadata.snapshot(snapshot_id)
        ancestors = () if snapshot is None else self.metadata.ancestors(snapshot)
        return next((each.snapshot_id for each in ancestors if each.snapshot_id not in missing), None)

    def _expire(self, ids: Sequence[int]) -> str:
        chosen = "".join(f" --snapshot-id {snapshot_id}" for snapshot_id in ids[:_SHOWN])
        return f"iceberg-cli expire-snapshots {self.table}{chosen}"

    def _recipe(self, verb: str) -> str:
        """The command that runs a verb, together with the upgrade where that is due."""
        return f"iceberg-cli {verb if self.upgraded else 'upgrade-v3'} {self.table}" + (
            "" if self.upgraded else f" --with {verb}"
        )


def _is_known(transform: str) -> bool:
    return parse(transform).kind != "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The engine and library that made a snapshot, and their support of version 3.

    Args:
        name: engine and version, as summaries spell them; "an unnamed writer" where they have none.
        library: of Apache Iceberg's library, or "".
        support: of version 3: `_READS`, `_PARTLY`, `_NOT` or `_UNKNOWN`.
        why: the reason of the verdict.
    """

    name: str
    library: str
    support: str
    why: str


def writer_of(summary: Mapping[str, str] | None) -> Writer:
    """The writer of a snapshot, by its summary."""
    fields = summary or {}
    engine, version = fields.get("engine-name", ""), fields.get("engine-version", "")
    if not engine and "trino_query_id" in fields:
        engine = "trino"
    library = fields.get("iceberg-version", "").partition(" (")[0]
    name = " ".join(part for part in (engine, version) if part) or library or _UNNAMED
    support, why = _judged(engine, version, library)
    return Writer(name=name, library=library, support=support, why=why)


def _judged(engine: str, version: str, library: str) -> tuple[str, str]:
    if engine == "trino":
        number = _NUMBER.match(version)
        if number is None:
            return _UNKNOWN, f"Trino reads version 3 since {_TRINO_PARTLY}, and its snapshots name no release"
        if int(number[0]) >= _TRINO_PARTLY:
            return _PARTLY, "it reads deletion vectors; its release notes do not say that it keeps row ids"
        return _NOT, f"Trino reads version 3 since {_TRINO_PARTLY} only"
    match = _LIBRARY.match(library)
    if match is None:
        return _UNKNOWN, "its snapshots do not say which library it has"
    release = (int(match[1]), int(match[2]))
    if release >= _LIBRARY_READS:
        return _READS, f"{library} reads version 3, deletion vectors and row ids"
    if release >= _LIBRARY_PARTLY:
        return _PARTLY, f"{library} reads deletion vectors, and keeps row ids only since 1.10"
    return _NOT, f"{library} does not read deletion vectors, which Apache Iceberg does since 1.8"
