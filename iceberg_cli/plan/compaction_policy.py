"""What an operator may ask of a rewrite of data files, whatever the table's format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.policy import Choice, Policy, Ratio, Several, Size, Switch, Text, Whole, option
from iceberg_cli.plan.sort_terms import sort_terms
from iceberg_cli.plan.text import size_or_duration
from iceberg_cli.plan.where import Where

VERB_NAME: Final = "rewrite-data-files"
CURVED: Final = ("z-order", "hilbert")
DECLARED: Final = "declared"  # what the table itself asks for
_MOST_CURVED: Final = 9


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class CompactionPolicy(Policy):
    """The options that both formats have; None where the table's property or a default decides."""

    strategy: str | None = option(
        Choice(("bin-pack", "sort", *CURVED, DECLARED)),
        "Keep rows as they are, sort them, or lay them along a curve, by columns that you or the table name.",
    )
    sort_by: Sequence[str] = option(
        Several(Text("FIELD")),
        "Sort rows by columns, as FIELD:desc:nulls-last; with --strategy sort on Iceberg default: the table's order.",
        default=(),
        omitted=True,
        own=True,
    )
    curve_by: Sequence[str] = option(
        Several(Text("FIELD")),
        "The 2 to 9 columns of the curve, which readers filter by: that of --strategy z-order, else of hilbert.",
        default=(),
        omitted=True,
    )
    min_gain: float | None = option(
        Ratio(),
        "Bring rows into an order where reads of one value open fewer files by this part; default: 0.1.",
        omitted=True,
    )
    full: bool = option(
        Switch(),
        "Bring all files of a partition into order where that gains enough, not only those where it is worth most.",
        default=False,
        omitted=True,
    )
    where: str | None = option(
        Where(),
        "Only files that may have such rows: field = 'value' AND field IN (1, 2), by partition field or column.",
    )
    target_size: int | str | None = option(
        Size(),
        "About how large new files are; default: the table's own target, else 512MiB, on Delta 1GiB.",
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
    delete_ratio: float | None = option(
        Ratio(), "Rewrite a file from this part of deleted rows on; default: 0.3, on Delta 0.05."
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
    no_verify_rows: bool = option(
        Switch(),
        "Count the rows that are written, and do not compare them with those that were read.",
        default=False,
    )
    unsafe_accept_space: bool = option(
        Switch(), "Begin although the new files are expected to need more room than there is.", default=False
    )

    def bytes_of(self, name: str) -> int | None:
        """A size, in bytes; None where it was not given."""
        return cast("int | None", getattr(self, name))

    @property
    def order_strategy(self) -> str | None:
        """How rows are brought into an order, which naming columns says, too; None where they stay as they are."""
        if self.strategy is not None:
            return None if self.strategy == "bin-pack" else self.strategy
        return "sort" if self.sort_by else "hilbert" if self.curve_by else None

    @property
    def commit_pace(self) -> tuple[int | None, int | None]:
        """See `size_or_duration`."""
        return size_or_duration(self.commit_every, "--commit-every")

    def check_together(self) -> None:
        """Refuse numbers that exclude each other."""
        _ = self.commit_pace
        if self.single_commit and self.max_commits is not None:
            raise UsageError("--single-commit and --max-commits exclude each other")
        strategy = self.order_strategy
        if self.sort_by and strategy != "sort":
            raise UsageError("--sort-by is for --strategy sort")
        if self.curve_by and strategy not in CURVED:
            raise UsageError(f"--curve-by is for --strategy {' or '.join(CURVED)}")
        if strategy in CURVED and not 2 <= len(self.curve_by) <= _MOST_CURVED:
            instead = "; one column is for --strategy sort" if len(self.curve_by) == 1 else ""
            raise UsageError(
                f"--strategy {strategy} needs 2 to {_MOST_CURVED} columns of --curve-by, and has "
                f"{len(self.curve_by) or 'none'}{instead}"
            )
        _ = sort_terms(self.sort_by)
