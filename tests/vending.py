"""Tables of a REST catalog that gives credentials of users of a storage, which can end at any request to it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.cli.running import Ran, iceberg_cli
from tests.rest_servers import Front, pyiceberg_options_of, rest_server_over, table_of_integers, warehouse_on
from tests.s3_front import S3Front, s3_front
from tests.servers import VersitygwWithUsers

_NUMBERS: Final = itertools.count()
ROWS: Final = (0, 1, 2, 3)


@pytest.fixture(scope="session")
def rest_with_users(versitygw_with_users: VersitygwWithUsers) -> Iterator[str]:
    """The URI of a REST catalog whose warehouse is on a service with users."""
    with (
        TemporaryDirectory(prefix="ice-rest-") as folder,
        rest_server_over(f"jdbc:sqlite:{folder}/catalog.db", s3=versitygw_with_users) as uri,
    ):
        yield uri


@dataclass
class Vending:
    """A table of which the catalog gives the credentials of a user, and who else may be given."""

    s3: VersitygwWithUsers
    catalog: Front
    service: S3Front
    theirs: RestCatalog
    name: tuple[str, str]
    config: Path
    users: list[str] = field(default_factory=list)

    def vend(self) -> None:
        """From now on the catalog gives the credentials of a new user."""
        key = f"user{next(_NUMBERS)}"
        self.s3.create_user(key)
        self.users.append(key)
        self.catalog.vended = {
            "s3.endpoint": self.service.endpoint,
            "s3.access-key-id": key,
            "s3.secret-access-key": self.s3.secret_of(key),
            "client.region": "us-east-1",
        }

    def end(self) -> None:
        """The storage takes the present user's credentials no more."""
        self.s3.delete_user(self.users[-1])

    @property
    def table(self) -> Table:
        """As PyIceberg reads it with credentials that do not end."""
        return self.theirs.load_table(self.name)

    def rows(self) -> list[int]:
        """All rows of main, in order."""
        found: list[int] = self.table.scan().to_arrow()["i"].sort().to_pylist()
        return found

    def files(self) -> set[str]:
        """What the service keeps of the table, without journals."""
        folder = self.s3.folder / self.table.location().removeprefix(f"s3://{self.s3.bucket}/")
        return {
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if path.is_file() and "_iceberg_cli" not in path.parts
        }

    def arguments(self, verb: str, *options: object) -> tuple[object, ...]:
        """Of a command on the table."""
        return verb, f"prod.{'.'.join(self.name)}", *options, "--catalog-config", self.config, "--no-cache"

    def run(self, verb: str, *options: object) -> Ran:
        """Run a command in this process."""
        return iceberg_cli(*self.arguments(verb, *options), "--format", "json", "--no-progress")


@contextmanager
def vending(
    server: str,
    s3: VersitygwWithUsers,
    folder: Path,
    before: Mapping[int, Callable[[Vending], object]],
    rows: Sequence[int] = ROWS,
) -> Iterator[Vending]:
    """A table with a snapshot for each row, and its catalog.

    Args:
        server: the URI of the catalog.
        s3: where its warehouse is.
        folder: for the configuration.
        before: what is done before the request to the storage of a number, which counts from 1.
        rows: of the table.
    """
    name = (f"n{uuid.uuid4().hex}", "t")
    location = f"{warehouse_on(s3)}/{name[0]}/t"
    theirs = table_of_integers(server, name[:1], location, rows, pyiceberg_options_of(s3))
    config = folder / "pyiceberg.yaml"
    bound = {
        number: (lambda does=does: does(made))  # type: ignore[misc]
        for number, does in before.items()
    }
    with Front(server) as catalog, s3_front(s3.endpoint, bound) as service:
        config.write_text(f"catalog:\n  prod:\n    type: rest\n    uri: {catalog.uri}\n")
        made = Vending(s3, catalog, service, theirs, name, config)
        made.vend()
        yield made


def replaced(made: Vending) -> None:
    """The credentials end, and the catalog gives those of another user."""
    made.end()
    made.vend()
