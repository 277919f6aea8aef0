"""Which data files a rewrite chooses: by its policy, the table's target size, and documented defaults."""

from __future__ import annotations

from typing import cast

from iceberg_cli.errors import UsageError
from iceberg_cli.layout.compaction import CompactionSettings, GroupOrder, compaction_settings
from iceberg_cli.layout.files import budget
from iceberg_cli.layout.files.ordering import MIN_GAIN
from iceberg_cli.plan.compaction_policy import CURVED, CompactionPolicy
from iceberg_cli.plan.plan import Option

_MIN_INPUT_FILES = 5


def chosen_by(
    policy: CompactionPolicy, target: Option, *, delete_ratio: float, delete_files: int | None = None
) -> tuple[CompactionSettings, dict[str, Option]]:
    """Which files are chosen, and the options that say so.

    Args:
        policy: what the operator asked for.
        target: of new files, in bytes.
        delete_ratio: where the policy has none.
        delete_files: see `CompactionSettings`.

    Raises:
        UsageError: sizes do not go together.
    """
    brings_into_order = policy.order_strategy is not None
    for flag, is_given in (("--min-gain", policy.min_gain is not None), ("--full", policy.full)):
        if is_given and not brings_into_order:
            raise UsageError(
                f"{flag} is for rows that come into an order: --strategy sort, {' or '.join(CURVED)}"
            )
    try:
        settings = compaction_settings(
            target.value,
            min_bytes=policy.bytes_of("min_size"),
            max_bytes=policy.bytes_of("max_size"),
            min_input_files=policy.chosen("min_input_files", _MIN_INPUT_FILES).value,
            delete_files=delete_files,
            delete_ratio=policy.chosen("delete_ratio", delete_ratio).value,
            rewrite_all=policy.rewrite_all,
            max_group_bytes=policy.bytes_of("max_group_size"),
            max_files=policy.max_files,
            max_rewrite_bytes=policy.bytes_of("max_rewrite_bytes"),
            group_order=cast("GroupOrder | None", policy.group_order),
            processes=budget.processes_of(policy.processes, budget.memory_of(policy.bytes_of("memory"))),
            in_order=brings_into_order,
        )
    except ValueError as error:
        raise UsageError(f"--{error}") from error
    commits = 1 if policy.single_commit else budget.DEFAULT_COMMITS
    options = {
        **(_order_options(policy) if brings_into_order else {}),
        "where": policy.chosen("where"),
        "target_size_bytes": target,
        "min_size_bytes": policy.chosen("min_size", settings.min_bytes),
        "max_size_bytes": policy.chosen("max_size", settings.max_bytes),
        "min_input_files": policy.chosen("min_input_files", settings.min_input_files),
        "delete_ratio": policy.chosen("delete_ratio", settings.delete_ratio),
        "rewrite_all": policy.chosen("rewrite_all"),
        "max_group_size_bytes": policy.chosen("max_group_size", settings.max_group_bytes),
        "max_files": policy.chosen("max_files"),
        "max_rewrite_bytes": policy.chosen("max_rewrite_bytes"),
        "group_order": policy.chosen("group_order"),
        "commit_every": policy.chosen("commit_every"),
        "max_commits": policy.chosen("max_commits", commits),
        "single_commit": policy.chosen("single_commit"),
        # What this machine has decides where nobody says, and a plan is the same on each.
        "processes": policy.chosen("processes"),
        "memory_bytes": policy.chosen("memory"),
        "no_verify_rows": policy.chosen("no_verify_rows"),
    }
    return settings, options


def _order_options(policy: CompactionPolicy) -> dict[str, Option]:
    """The options that say what order rows come into."""
    given = (policy.chosen_or_none(name) for name in ("sort_by", "curve_by", "full"))
    return {
        "strategy": policy.chosen("strategy", policy.order_strategy),
        **{name: each for own in given for name, each in own.items()},
        "min_gain": policy.chosen("min_gain", MIN_GAIN),
    }
