"""Whether a table may get what the client that wrote last does not know: the option of the verbs that do so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from iceberg_cli.plan.policy import Several, Text, option

if TYPE_CHECKING:
    from iceberg_cli.plan.plan import Plan

ALLOW_WRITER_LOSS: Final = "--allow-writer-loss"
CLIENT: Final = "client"  # the subject of verdicts on clients
WRITER_STATE: Final = "writer-state"  # and on what a streaming writer finds: "of WRITER on branch NAME"
_FIELD: Final = "allow_writer_loss"


def allow_writer_loss(of_format: str = "") -> Any:
    """The field `allow_writer_loss` of a policy.

    Args:
        of_format: "Delta: " where only tables of one format have the option.
    """
    about = "Accept that this client, which wrote last, cannot write any more, by the name that the plan has."
    return option(
        Several(Text("NAME", empty=False), by_commas=False),
        of_format + about,
        default=(),
        flag=ALLOW_WRITER_LOSS,
        omitted=True,
    )


def accepts_loss(policy: Mapping[str, Any], client: str) -> bool:
    """Whether the operator accepts that a client is shut out.

    Args:
        policy: in its JSON form.
        client: its name.
    """
    return client in policy.get(_FIELD, ())


def loss_notes(plan: Plan) -> tuple[str, ...]:
    """What a report repeats of a plan: which clients it shuts out, and whether streaming writers find their states."""
    clients = {verdict.id for verdict in plan.verdicts if verdict.subject == CLIENT}
    named = (*clients, *plan.policy.get(_FIELD, ()))
    return (
        *(text for text in plan.warnings if text.startswith(named)),
        *(f"writer state {each.id}: {each.reason}" for each in plan.verdicts if each.subject == WRITER_STATE),
    )


def loss_reason(client: str, why: str) -> str:
    """Why a plan is blocked that shuts out the client that wrote last.

    Args:
        client: its name.
        why: what it cannot do.
    """
    way_out = shlex.join([ALLOW_WRITER_LOSS, client])
    return f"{client} wrote last: {why}. Let a newer one write, or accept it with {way_out}"
