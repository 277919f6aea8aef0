"""rewrite-data-files on an Iceberg table: the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, cast

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.policy import Choice, Policy, Ratio, Several, Size, Switch, Text, Whole, option
from iceberg_cli.plan.text import size_or_duration
from iceberg_cli.plan.verb_place import VerbPlace
from iceberg_cli.plan.where import Where

VERB_NAME: Final = "rewrite-data-files"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RewriteDataFiles(Policy):
    """The options of rewrite-data-files; None where the table's property or a default decides."""

    verb: ClassVar[str] = VERB_NAME
    place: ClassVar = VerbPlace(
        order=3,
        only_by_policy=True,
        names_elsewhere=(
            "bin-pack",
            "binpack",
            "compact",
            "compact-files",
            "compaction",
            "optimise",
            "optimize",
            "rewrite",
            "rewrite-data",
            "rewrite-datafiles",
            "rewrite-files",
        ),
    )
    about: ClassVar[str] = """
        Write the rows of small files, and of files with many deleted rows, to few files without deletes.

        The rows of the branch stay the same, with their row ids. Groups of files of one partition are rewritten side by
        side, proved equal, and committed as they are finished; where another writer changes a file meanwhile, its group
        is left to the next run and no other one. No file is deleted: expire-snapshots does that once no snapshot needs
        it.
        """
    examples: ClassVar = (
        ("All partitions, without a question:", "rewrite-data-files prod.sales.orders --yes"),
        (
            "One day, to files of 128 MiB:",
            "rewrite-data-files prod.sales.orders --where \"day = '2026-11-01'\" --target-size 128MiB",
        ),
    )

    strategy: str | None = option(
        Choice(("bin-pack",)),
        "How rows are brought together; default: bin-pack, in the order in which they are.",
    )
    branch: str = option(Text("NAME", empty=False), "The branch; default: main.", default="main")
    where: str | None = option(
        Where(),
        "Only files that may have such rows: field = 'value' AND field IN (1, 2), by partition field or column.",
    )
    target_size: int | str | None = option(
        Size(),
        "About how large new files are; default: write.target-file-size-bytes, else 512MiB.",
        json_name="target_size_bytes",
        own=True,
    )
    min_size: int | str | None = option(
        Size(), "Smaller files are rewritten; default: 0.75 of the target.", json_name="min_size_bytes"
    )
    max_size: int | str | None = option(
        Size(), "Larger files are rewritten; default: 1.8 of the target.", json_name="max_size_bytes"
    )
    min_input_files: int | None = option(
        Whole(), "Fewer small files of a partition stay, unless they are more than the target; default: 5."
    )
    delete_files: int | None = option(
        Whole(), "Rewrite a file to which so many delete files apply; default: however many."
    )
    delete_ratio: float | None = option(
        Ratio(), "Rewrite a file from this part of deleted rows on; default: 0.3."
    )
    rewrite_all: bool = option(Switch(), "Rewrite all files, whatever their sizes.", default=False)
    max_group_size: int | str | None = option(
        Size(),
        "Of what is expected to be written of a group; default: 8 targets.",
        json_name="max_group_size_bytes",
    )
    max_files: int | None = option(Whole(), "Rewrite at most so many files.")
    max_rewrite_bytes: int | str | None = option(
        Size(), "Rewrite files of at most so many bytes together.", json_name="max_rewrite_bytes"
    )
    output_spec: str | None = option(
        Choice(("same", "current")),
        "The partition spec of new files: that of their rows' files, or the table's current one; default: same.",
        omitted=True,
    )
    output_format: str | None = option(
        Choice(("parquet",)), "Write Parquet, though the table's files are of another format."
    )
    group_order: str | None = option(
        Choice(("bytes-desc", "bytes-asc", "files-desc", "files-asc")),
        "Which groups are rewritten first; default: by partition.",
    )
    commit_every: str | None = option(
        Text("SIZE|DURATION", empty=False),
        "Commit when files of so many bytes are rewritten, or as often as that; default: a tenth of all, or 10m.",
    )
    max_commits: int | None = option(Whole(), "At most so many commits; default: 10.")
    single_commit: bool = option(Switch(), "Commit all groups at once, at the end.", default=False)
    processes: int | None = option(
        Whole(),
        "Groups rewritten side by side; default: processors, as memory allows, 1 in `maintain`; on Spark all cores.",
        in_policy_files=1,
        not_in_policy_files=True,
    )
    memory: int | str | None = option(
        Size(),
        "For all rows held at a time; default: 2GiB, or a quarter of what there is; on Spark of each task: 1GiB.",
        json_name="memory_bytes",
        not_in_policy_files=True,
    )
    no_assign_row_ids: bool = option(
        Switch(),
        "Do nothing where rows have no ids yet, as after an upgrade; else `assign-row-ids` of the branch comes first.",
        default=False,
        omitted=True,
        in_policy_files=True,
        not_in_policy_files=True,
    )
    no_verify_rows: bool = option(
        Switch(),
        "Count the rows that are written, and do not compare them with those that were read.",
        default=False,
    )

    unsafe_accept_space: bool = option(
        Switch(), "Begin although the new files are expected to need more room than there is.", default=False
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

    def bytes_of(self, name: str) -> int | None:
        """A size, in bytes; None where it was not given."""
        return cast("int | None", getattr(self, name))

    @property
    def commit_pace(self) -> tuple[int | None, int | None]:
        """See `size_or_duration`."""
        return size_or_duration(self.commit_every, "--commit-every")

    def check_together(self) -> None:
        """Refuse numbers that exclude each other."""
        _ = self.commit_pace
        if self.single_commit and self.max_commits is not None:
            raise UsageError("--single-commit and --max-commits exclude each other")


POLICY: Final = RewriteDataFiles
