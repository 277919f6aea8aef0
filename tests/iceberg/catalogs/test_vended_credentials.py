"""Credentials of the storage, given by a REST catalog, that end while a verb runs: the storage itself refuses them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.budget import FULL
from tests.servers import VersitygwWithUsers
from tests.vending import ROWS, Vending, replaced, vending

pytestmark = pytest.mark.deep

VERBS = {
    "expire-snapshots": ("expire-snapshots", "--older-than", "0s", "--retain-last", "1"),
    "rewrite-manifests": ("rewrite-manifests",),
    "upgrade-v3": ("upgrade-v3", "--with", "assign-row-ids"),
}
PLACES = range(1, 56) if FULL else (25, 40, 49)  # of requests to the storage; a run has 45 to 55


def ended(made: Vending) -> None:
    """The user's credentials end, and the catalog goes on to give them."""
    made.end()


def ended_and_refused(made: Vending) -> None:
    """They end, and the catalog gives no others."""
    made.end()
    made.catalog.answers_to_gets += [403] * 99


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_goes_on_with_new_credentials_where_those_it_has_end(
    rest_with_users: str, versitygw_with_users: VersitygwWithUsers, tmp_path: Path, verb: str, place: int
) -> None:
    with vending(rest_with_users, versitygw_with_users, tmp_path, {place: replaced}) as made:
        before = made.files()
        done = made.run(*VERBS[verb], "--yes")
        assert (done.code, done.json["status"]) == (0, "done"), done.out
        assert made.rows() == [*ROWS]
        assert set(made.service.signed_by[:place]) == {made.users[0]}
        assert len(made.users) == 1 or made.users[1] in made.service.signed_by
        if verb == "expire-snapshots":
            assert len(made.table.metadata.snapshots) == 1
            assert len(before - made.files()) == len(ROWS) - 1  # the manifest lists of the others
        else:
            assert before <= made.files()
        assert made.run(*VERBS[verb], "--yes").json["status"] == "nothing_to_do"


@pytest.mark.parametrize("end", [ended, ended_and_refused], ids=lambda does: does.__name__)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("verb", VERBS)
def test_without_new_credentials_a_verb_stops_with_one_error_and_goes_on_once_there_are_some(
    rest_with_users: str,
    versitygw_with_users: VersitygwWithUsers,
    tmp_path: Path,
    verb: str,
    place: int,
    end: Callable[[Vending], None],
) -> None:
    with vending(rest_with_users, versitygw_with_users, tmp_path, {place: end}) as made:
        location, before = made.table.metadata_location, made.files()
        stopped = made.run(*VERBS[verb], "--yes")
        is_committed = made.table.metadata_location != location
        assert made.rows() == [*ROWS]
        if stopped.code:
            # 13: what became of the commit could not be read back.
            assert stopped.code in ({13, 14, 16} if is_committed else {16}), stopped.out
            state = stopped.json["state"]
            assert ("Nothing was changed" in state or "was not changed" in state) <= (not is_committed), state
            assert "403" in stopped.json["message"] or "InvalidAccessKeyId" in stopped.json["message"]
        else:  # all but the journal was done, which the next run removes
            assert stopped.json["status"] == "done"
        if not is_committed:
            assert before <= made.files()
        made.catalog.answers_to_gets.clear()
        made.vend()
        assert made.run("resume").code == 0
        assert made.run(*VERBS[verb], "--yes").code == 0
        assert made.rows() == [*ROWS]
        if verb == "expire-snapshots":
            assert len(made.table.metadata.snapshots) == 1
            assert len(before - made.files()) == len(ROWS) - 1
        assert made.run(*VERBS[verb], "--yes").json["status"] == "nothing_to_do"
        assert made.run("inspect", "--check").code == 0
