"""rewrite-data-files on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from iceberg_cli.plan.compaction_policy import VERB_NAME, CompactionPolicy
from iceberg_cli.plan.policy import Choice, Several, Switch, Text, Whole, option
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.way_back import WayBack


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteDataFiles(CompactionPolicy):
    """The options of rewrite-data-files; None where the table's property or a default decides."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=3,
        only_by_policy=True,
        names_elsewhere=(
            "bin-pack",
            "binpack",
            "cluster",
            "compact",
            "compact-files",
            "compaction",
            "optimise",
            "optimize",
            "reorg",
            "rewrite",
            "rewrite-data",
            "rewrite-datafiles",
            "rewrite-files",
            "sort",
            "z-order",
            "zorder",
        ),
        undo=WayBack(while_at_head=True),
    )
    about: ClassVar[str] = """
        Write the rows of small files, and of files with many deleted rows, to few files without deletes.

        The rows of the branch stay the same, with their row ids. Groups of files of one partition are rewritten side by
        side, proved equal, and committed as they are finished. Rows that another writer deletes meanwhile are deleted
        in the new files; where it replaces files, their group is left to the next run and no other one. No file is
        deleted: expire-snapshots does that once no snapshot needs it.
        """
    examples: ClassVar = (
        ("All partitions, without a question:", "rewrite-data-files prod.sales.orders --yes"),
        (
            "One day, to files of 128 MiB:",
            "rewrite-data-files prod.sales.orders --where \"day = '2026-11-01'\" --target-size 128MiB",
        ),
    )

    branch: str = option(Text("NAME", empty=False), "The branch; default: main.", default="main")
    delete_files: int | None = option(
        Whole(), "Rewrite a file to which so many delete files apply; default: however many."
    )
    output_spec: str | None = option(
        Choice(("same", "current")),
        "The partition spec of new files: that of their rows' files, or the table's current one; default: same.",
        omitted=True,
    )
    output_format: str | None = option(
        Choice(("parquet",)), "Write Parquet, though the table's files are of another format."
    )
    no_assign_row_ids: bool = option(
        Switch(),
        "Do nothing where rows have no ids yet, as after an upgrade; else `assign-row-ids` of the branch comes first.",
        default=False,
        omitted=True,
        in_policy_files=True,
        not_in_policy_files=True,
    )
    unsafe_ignore_properties: tuple[str, ...] = option(
        Several(Text("NAME", empty=False)),
        "Write files although this property of the table cannot be obeyed.",
        default=(),
        flag="--unsafe-ignore-property",
    )
    unsafe_ignore_upserts: bool = option(
        Switch(),
        "Move files by --output-spec though jobs write equality deletes for their partitions, which miss moved rows.",
        default=False,
        omitted=True,
    )
    unsafe_strand_branches: bool = option(
        Switch(),
        "Commit although an audit branch, or a staged snapshot, can then not be published as it is.",
        default=False,
    )


POLICY: Final = RewriteDataFiles
