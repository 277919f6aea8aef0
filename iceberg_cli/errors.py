"""Every error an operator can meet; each class knows its exit code.

    IcebergCliError            1   a bug
    +- UsageError              2   the command line cannot be carried out as written
    +- TableNotFound          10
    +- Refused                11   policy or interlock; nothing was changed
    |  +- StalePlan           11   the table moved and more would go than was shown
    |  +- TakenOver           11   another process goes on with the operation
    +- CommitConflict         12   every attempt was provably refused; nothing was changed
    +- CommitStateUnknown     13   the swap may or may not have happened; nothing was deleted
    +- DeletesFailed          14   committed; some files are still there
    +- Interrupted            14   stopped at a safe point; resumable
    +- CorruptFile            15   a file cannot be read whole
    |  +- InvalidMetadata     15   table metadata breaks the specification
    +- BackendUnavailable     16   storage or catalog did not answer

Messages say what cannot be done and because of which values; `state` says what state things
are in; `next_step` says what to do.
"""

from __future__ import annotations

from typing import Any


class IcebergCliError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what cannot be done and because of which values.
        state: what state table and files are in now.
        next_step: what the operator can do.
    """

    exit_code = 1
    default_state = "Nothing was changed."

    def __init__(self, message: str, *, state: str | None = None, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.state = self.default_state if state is None else state
        self.next_step = next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its fields: a subclass's constructor asks for others than `args` holds."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[IcebergCliError], args: tuple[Any, ...], fields: dict[str, Any]) -> IcebergCliError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class UsageError(IcebergCliError):
    """The command line cannot be carried out as written."""

    exit_code = 2


class TableNotFound(IcebergCliError):
    """No table is there."""

    exit_code = 10


class Refused(IcebergCliError):
    """Policy or an interlock forbids it."""

    exit_code = 11


class StalePlan(Refused):
    """The table moved, and carrying out the plan anew would do more than was shown."""


class TakenOver(Refused):
    """Another process goes on with this operation."""

    default_state = "What was done so far is in its journal; the other process finishes it."


class CommitConflict(IcebergCliError):
    """Every attempt to commit was provably refused."""

    exit_code = 12


class CommitStateUnknown(IcebergCliError):
    """The swap may or may not have happened."""

    exit_code = 13
    default_state = "The commit may or may not have happened. Nothing was deleted."


class DeletesFailed(IcebergCliError):
    """The commit is done; some files could not be deleted."""

    exit_code = 14
    default_state = "The commit is done. Some unreferenced files are still there."


class Interrupted(IcebergCliError):
    """Stopped by a signal at a safe point."""

    exit_code = 14


class CorruptFile(IcebergCliError):
    """A file cannot be read whole.

    Args:
        path: the file, as the table spells it.
        offset: byte where reading stopped to make sense, or the field's name, or None.
        reason: what is wrong there.
    """

    exit_code = 15

    def __init__(self, path: str, offset: int | str | None, reason: str) -> None:
        place = "" if offset is None else f" at byte {offset}" if isinstance(offset, int) else f", {offset}"
        super().__init__(f"Cannot read {path}{place}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class InvalidMetadata(CorruptFile):
    """Table metadata breaks the specification; `offset` names the field."""


class BackendUnavailable(IcebergCliError):
    """Storage or catalog did not answer."""

    exit_code = 16
