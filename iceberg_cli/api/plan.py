"""What a verb would do to a table: shown, saved to a file, compared, and carried out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from iceberg_cli.errors import CorruptFile, StalePlan, UsageError
from iceberg_cli.formats import VERB_NAMES
from iceberg_cli.plan.display import Shown
from iceberg_cli.plan.events import (
    SAVE,
    Listener,
    phase,
    unheard,
)
from iceberg_cli.plan.text import count, end_of, size

if TYPE_CHECKING:
    from iceberg_cli.operation.ports import Build
    from iceberg_cli.plan.plan import Plan as PlanContent
    from iceberg_cli.plan.plan import Step, Verdict
    from iceberg_cli.plan.removals import Removals


_PLAN_AGAIN: Final = "The file is not as `plan --output` wrote it: plan again."


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What a verb would do to a table: to be looked at, saved, compared, and carried out by `Table.apply`.

    Args:
        content: the value that is shown and saved.
        build: writes its files; None for a plan that was loaded, which is planned again for that.
    """

    content: PlanContent
    build: Build | None = field(default=None, compare=False)
    shown_as: ClassVar[str] = "plan"

    def __repr__(self) -> str:
        """What of which table, in numbers."""
        what = "nothing to do"
        if self.due:
            files, size_bytes = self.content.deletes
            what = f"{count(files, 'files')}, {size(size_bytes)} freed" if files else "due"
        blocked = ", blocked" if self.blocked_by else ""
        return f"Plan({self.verb} of {end_of(str(self.table['name']))}: {what}{blocked})"

    @property
    def verb(self) -> str:
        """The verb's name."""
        return self.content.verb

    @property
    def table(self) -> Mapping[str, Any]:
        """The table's `name`, `location`, `format` and `format_version`."""
        return self.content.table

    @property
    def as_of_ms(self) -> int:
        """The "now" of every age."""
        return self.content.as_of_ms

    @property
    def due(self) -> bool:
        """Whether there is something to do."""
        return self.content.due

    @property
    def steps(self) -> Sequence[Step]:
        """What is done, in order."""
        return self.content.steps

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """What stays and what goes, each with its reason."""
        return self.content.verdicts

    @property
    def warnings(self) -> Sequence[str]:
        """What the operator should know."""
        return self.content.warnings

    @property
    def blocked_by(self) -> Sequence[str]:
        """Why it is not carried out; empty where it is."""
        return self.content.blocked_by

    @property
    def removals(self) -> Removals:
        """The files that go: `count`, `size_bytes`, `by_kind`, and `rows`, an Arrow table."""
        assert self.content.removals is not None
        return self.content.removals

    def additions_over(self, shown: Plan) -> Sequence[str]:
        """What would go or change by this plan and not by another one, in words."""
        return self.content.additions_over(shown.content)

    def to_json(self, *, beside: str | None = None) -> dict[str, Any]:
        """The `plan/2` document.

        Args:
            beside: the path at which it is saved: it names the files that are beside it there.
        """
        if beside is None:
            return self.content.to_json()
        return self.content.to_json(
            removals_file=os.path.basename(_removals_beside(beside)),
            inputs_file=None if self.content.groups is None else os.path.basename(_inputs_beside(beside)),
        )

    def save(self, path: str, *, on_event: Listener = unheard) -> None:
        """Write it to a file, and its removals and the inputs of its groups beside that; existing files are replaced.

        Args:
            path: of the file.
            on_event: see `open_table`.

        Raises:
            UsageError: the file cannot be written.
        """
        from iceberg_cli.operation.removal_files import save_beside, write_file
        from iceberg_cli.plan.plan import encode

        try:
            with phase(SAVE, on_event, table=self.table["name"]):
                save_beside(self.removals, _removals_beside(path), on_event)
                if self.content.groups is not None:
                    write_file(_inputs_beside(path), self.content.groups.data)
                write_file(path, encode(self.to_json(beside=path)))
        except OSError as error:
            raise UsageError(
                f"Cannot write the plan to {error.filename or path}: {error.strerror}"
            ) from error

    @classmethod
    def load(cls, path: str) -> Self:
        """A plan that `save` wrote.

        Raises:
            UsageError: no such file, or no verb of ours.
            CorruptFile: the plan and its removals do not fit.
        """
        from iceberg_cli.encoding.strict_json import loads
        from iceberg_cli.operation.removal_files import load_beside
        from iceberg_cli.plan.documents import plan_from_json

        try:
            with open(path, "rb") as file:
                document = loads(file.read(), path)
            recorded = document.get("removals")
            name = recorded.get("file") if isinstance(recorded, dict) else None
            if not isinstance(name, str) or not name or os.path.basename(name) != name:
                raise UsageError(f"{path} was not written by `plan --output`: it names no removals file")
            removals = load_beside(os.path.join(os.path.dirname(path), name))
            content = plan_from_json(document, removals=removals, path=path, read=partial(_read_beside, path))
        except OSError as error:
            raise UsageError(f"Cannot read the plan: {error.filename}: {error.strerror}") from error
        except CorruptFile as error:
            error.next_step = _PLAN_AGAIN
            raise
        if content.verb not in VERB_NAMES:
            raise UsageError(f"{path} is a plan of {content.verb!r}, which is no verb here")
        return cls(content)


def _removals_beside(path: str) -> str:
    """Where the removals of a saved plan are."""
    return f"{path}.removals.parquet"


def _inputs_beside(path: str) -> str:
    """Where the inputs of the groups of a saved plan are."""
    return f"{path}.inputs.arrow"


def _read_beside(path: str, name: str) -> bytes:
    with open(os.path.join(os.path.dirname(path), name), "rb") as file:
        return file.read()


def refuse_additions(additions: Sequence[str]) -> None:
    """Refuse a plan that would do what the one that was shown does not list.

    Args:
        additions: see `Plan.additions_over`.

    Raises:
        StalePlan: there are some.
    """
    if additions:
        raise StalePlan(
            f"Cannot apply this plan: the table moved, and {len(additions)} things that the file does not list would "
            f"go, such as {additions[0]}",
            next_step="Plan again and look at it.",
        )
