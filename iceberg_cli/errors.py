"""Errors that operators can meet, each class with its exit code.

    IcebergCliError            1   a bug
    +- UsageError              2   the command line cannot be carried out as written
    +- TableNotFound          10
    +- Refused                11   policy or interlock; nothing was changed
    |  +- StalePlan           11   the table moved and more would go than was shown
    |  +- RequestTooLarge     11   the catalog takes no request as large as a commit
    |  +- TakenOver           11   another process goes on with the operation
    +- CommitConflict         12   every attempt was provably refused; nothing was changed
    +- CommitStateUnknown     13   the swap may or may not have happened; nothing was deleted
    +- DeletesFailed          14   committed; some files are still there
    +- Interrupted            14   stopped at a safe point; resumable
    |  +- Cancelled          130   ended by a signal before anything was changed, or at once; SIGTERM: 143
    +- CorruptFile            15   a file cannot be read whole
    |  +- InvalidMetadata     15   table metadata breaks the specification
    +- BackendUnavailable     16   storage or catalog did not answer
       +- AccessDenied        16   it answered that this user may not
       +- StorageFull         16   it has no room left

Messages say what cannot be done and because of which values; `state` says what state things
are in; `next_step` says what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from typing import Any, Final

WORST_FIRST: Final = (1, 13, 15, 14, 16, 12, 10, 11)
"""The exit codes of which a run has one where it has several."""


def worst_of(codes: Iterable[int]) -> int:
    """The worst of some exit codes; 0 of none."""
    found = {code for code in codes if code}
    return next((code for code in (*WORST_FIRST, *sorted(found)) if code in found), 0)


class IcebergCliError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what cannot be done and because of which values.
        state: what state table and files are in now.
        next_step: what the operator can do; without it, what helps with every error of the class.
    """

    exit_code = 1
    default_state = "Nothing was changed."
    default_next_step = "This is a bug: report it with the command and this message."

    def __init__(self, message: str, *, state: str | None = None, next_step: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.state = self.default_state if state is None else state
        self.next_step = next_step or self.default_next_step
        self.was_looking = False  # nobody would think that anything was changed

    def __str__(self) -> str:
        """The message as it is now: whoever knows more may have added to it."""
        return self.message

    @property
    def next(self) -> str:
        """The next step, as the error's document calls it."""
        return self.next_step

    @property
    def general(self) -> bool:
        """Whether its next step is that of its class, which a caller that knows the operation may replace."""
        return self.next_step == self.default_next_step

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error by its fields: constructors of subclasses take other arguments than `args`."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[IcebergCliError], args: tuple[Any, ...], fields: dict[str, Any]) -> IcebergCliError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


_DISTRIBUTION = "iceberg-table-maintenance"  # as in `iceberg_cli`, which imports this
# By a module's first name the extra of this distribution that brings it, where several things need it.
_EXTRAS = {
    "azure": "azure",
    "boto3": "glue",
    "botocore": "glue",
    "google": "gcs",
    "pyiceberg": "rest",
}
# The requirement for a module that no extra brings, where it is not the module's name.
_REQUIREMENTS = {
    "kerberos": "pyiceberg[hive-kerberos]>=0.12",
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "puresasl": "pyiceberg[hive-kerberos]>=0.12",
}


def command_for_extra(extra: str) -> str:
    """The command that installs this distribution with an extra."""
    return f"pip install '{_DISTRIBUTION}[{extra}]'"


def how_to_install(
    error: ImportError, *, extra: str = "", requirements: Mapping[str, str] | None = None
) -> str:
    """The next step where a module cannot be imported.

    Args:
        error: names the module.
        extra: of this distribution, that brings all that is needed; empty: what is known of the module decides.
        requirements: of a package that needs it, by the first names of modules.
    """
    module = (error.name or "").partition(".")[0]
    if own := (requirements or {}).get(module):
        return f"Install it with: pip install '{own}'"
    if extra := extra or _EXTRAS.get(module, ""):
        return f"Install all that is needed with: {command_for_extra(extra)}"
    return f"Install it with: pip install '{_REQUIREMENTS.get(module, module)}'"


class UsageError(IcebergCliError):
    """The command line cannot be carried out as written."""

    exit_code = 2
    default_next_step = "Correct the command: `iceberg-cli COMMAND --help` lists its options."


class TableNotFound(IcebergCliError):
    """No table is there."""

    exit_code = 10
    default_next_step = "Check the name: a table's folder or URI, or CATALOG.NAMESPACE.TABLE."


class Refused(IcebergCliError):
    """Policy or an interlock forbids it."""

    exit_code = 11
    default_next_step = (
        "Show this to whoever decides about the table: until that changes, it is refused again."
    )


class GroupLeftOut(Refused):
    """A group of files stays as it is, which is no error; the others are rewritten."""


class TooLittleMemory(Refused):
    """More would have to be held than may be; `needed_bytes` is how much."""

    needed_bytes = 0


class StalePlan(Refused):
    """The table moved, and carrying out the plan anew would do more than was shown."""

    default_next_step = "Plan again and look at it."


class RequestTooLarge(Refused):
    """The request of a commit is larger than its catalog takes."""

    default_next_step = (
        "Have the catalog, or the proxy before it, take larger requests. A new expiry is divided."
    )


class TakenOver(Refused):
    """Another process goes on with this operation."""

    default_state = "What was done so far is in its journal; the other process finishes it."
    default_next_step = "`resume --list` shows how far it is."


class CommitConflict(IcebergCliError):
    """Every attempt to commit was provably refused."""

    exit_code = 12
    default_next_step = "Run the same command again later: it plans on what others have committed."


class CommitStateUnknown(IcebergCliError):
    """The swap may or may not have happened."""

    exit_code = 13
    default_state = "The commit may or may not have happened. Nothing was deleted."
    default_next_step = "Run `resume`: it asks the table what happened."


class DeletesFailed(IcebergCliError):
    """The commit is done; some files could not be deleted."""

    exit_code = 14
    default_state = "The commit is done. Some unreferenced files are still there."
    default_next_step = "Run `resume` once the reason is gone: it deletes them."


class Interrupted(IcebergCliError):
    """Stopped by a signal at a safe point."""

    exit_code = 14
    default_next_step = "Run `resume`: it finishes the operation."


class Cancelled(Interrupted):
    """Ended by a signal before anything was changed, or at once; 143 where it was SIGTERM."""

    exit_code = 130
    default_next_step = "Run the same command again, or `resume`: either finishes what is open."


class CorruptFile(IcebergCliError):
    """A file cannot be read whole.

    Args:
        path: the file, as the table spells it.
        offset: byte where reading stopped to make sense, or the field's name, or None.
        reason: what is wrong there.
    """

    exit_code = 15
    default_next_step = (
        "`inspect TABLE --check` says what is damaged and what helps: until then run no verb on it."
    )

    def __init__(self, path: str, offset: int | str | None, reason: str) -> None:
        place = "" if offset is None else f" at byte {offset}" if isinstance(offset, int) else f", {offset}"
        super().__init__(f"Cannot read {path}{place}: {reason}")
        self.path = path
        self.offset = offset
        self.reason = reason


class InvalidMetadata(CorruptFile):
    """Table metadata breaks the specification; `offset` names the field."""


class BackendUnavailable(IcebergCliError):
    """Storage or catalog did not answer. `unanswered` is the path of a file that may be there all the same."""

    exit_code = 16
    unanswered = ""
    default_next_step = "Run the same command again once it answers."


class AccessDenied(BackendUnavailable):
    """Storage or catalog answered that this user may not."""

    default_next_step = (
        "Give this user that right, then run the same command again: until then it fails alike."
    )


class NoCredentials(AccessDenied):
    """None were found to ask a storage with: nothing was sent, and tried again nothing else comes of it."""

    exit_code = 2


class BucketNotFound(BackendUnavailable):
    """A storage answered that it has no such bucket or container: no table is there."""

    exit_code = 10
    default_next_step = "Correct the location, or the endpoint: asked again, the storage answers alike."


class StorageFull(BackendUnavailable):
    """A disk, or what this user may take of it, is full."""

    default_next_step = "Free space there or raise the quota, then run the same command again."


def unavailable(message: str, cause: OSError | UnicodeError, *, next_step: str = "") -> BackendUnavailable:
    """The error of the class that fits the operating system's error number, with its reason.

    Args:
        message: see `IcebergCliError`.
        cause: the operating system's error.
        next_step: see `IcebergCliError`.
    """
    number = cause.errno if isinstance(cause, OSError) else None
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDenied(message, next_step=next_step)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return StorageFull(message, next_step=next_step)
    return BackendUnavailable(message, next_step=next_step)
