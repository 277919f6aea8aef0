"""A REST catalog, which is listed page by page: a page is used up before the next one is asked for.

Spec: Iceberg REST catalog specification, `listNamespaces`, `listTables`, `loadTable`, `PageToken`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

import requests
from pyiceberg.catalog.rest import PAGE_SIZE, Capability, Endpoints

from iceberg_cli.errors import AccessDenied, UsageError
from iceberg_cli.iceberg.catalogs import Catalog, CatalogEntry, Committer, MayMatch, Pointer
from iceberg_cli.iceberg.catalogs.failures import no_answer
from iceberg_cli.iceberg.catalogs.namespaces import walk_namespaces
from iceberg_cli.iceberg.catalogs.rest.connection import DENIED, RestConnection, object_of

_GONE: Final = 404
_NO_PARENTS: Final = (400, 405, 501)  # what servers say that have no namespaces below others


class RestCatalog(Catalog):
    """What a server of the specification has, below a warehouse or a prefix."""

    @cached_property
    def _connection(self) -> RestConnection:
        self.uri()
        return RestConnection(self.name, self._settings)

    @property
    def _settings(self) -> Mapping[str, Any]:
        return {**self.sections, **self.properties}

    def open(
        self, levels: tuple[str, ...], table: str, storage_options: Mapping[str, str]
    ) -> tuple[Committer, Mapping[str, str]]:
        """See `Catalog.open`; the server gives options too."""
        from iceberg_cli.iceberg.catalogs.rest.committer import RestCommitter  # which no list needs

        connection = self._connection
        committer = RestCommitter(self.name, levels, table, self._settings, storage_options, connection)
        return committer, committer.storage_options

    def list(self, may_match: MayMatch) -> Iterator[CatalogEntry]:
        """The tables by namespaces; of one that was dropped meanwhile there are none."""
        connection = self._connection

        def below(levels: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
            parent = {"parent": _joined(connection, levels)} if levels else {}
            url = connection.catalog.url(Endpoints.list_namespaces)
            for each in _pages(connection, self.name, url, "namespaces", parent):
                # Some servers show the namespace itself, or all that are below it at any depth.
                if (
                    isinstance(each, list)
                    and each
                    and tuple(each[:-1]) == levels
                    and isinstance(each[-1], str)
                ):
                    yield tuple(each)

        if not connection.advertises(Capability.V1_LIST_TABLES):
            raise UsageError(f"Cannot list the catalog {self.name}: listTables is not among its endpoints")
        for levels in walk_namespaces(may_match, below):
            url = connection.catalog.url(Endpoints.list_tables, namespace=_encoded(connection, levels))
            for each in _pages(connection, self.name, url, "identifiers", {}):
                if isinstance(each, Mapping) and isinstance(table := each.get("name"), str):
                    yield CatalogEntry(levels, table)

    def pointer(self, levels: tuple[str, ...], table: str) -> Pointer | None:
        """The location and the metadata, by one request; None where the server does not tell.

        Raises:
            UsageError, AccessDenied, BackendUnavailable: see `RestConnection`.
        """
        connection = self._connection
        url = connection.catalog.url(
            Endpoints.load_table, namespace=_encoded(connection, levels), table=quote(table, safe="")
        )
        answer = connection.get(url, f"the catalog {self.name}", params={"snapshots": "all"})
        if answer.status_code != requests.codes.ok:
            return None
        document = object_of(answer)
        location, metadata = document.get("metadata-location"), document.get("metadata")
        is_whole = isinstance(location, str) and location and isinstance(metadata, Mapping)
        return Pointer(location, metadata) if is_whole else None  # type: ignore[arg-type]

    def place(self) -> Mapping[str, str]:
        """Server, warehouse and prefix."""
        own = {key: self.properties.get(key, "") for key in ("warehouse", "prefix")}
        return {**own, "uri": self.uri().rstrip("/")}

    def duplicates(self) -> Mapping[str, Sequence[CatalogEntry]]:
        """None that one request would tell."""
        return {}


def _pages(
    connection: RestConnection, name: str, url: str, field: str, params: Mapping[str, str]
) -> Iterator[Any]:
    """The elements of an answer's field, page after page."""
    # An empty token asks a server that has pages for the first one.
    token, seen = "", set[str]()
    size = connection.catalog.properties.get(PAGE_SIZE)
    sized = {} if size is None else {"pageSize": str(size)}
    while True:
        answer = connection.get(url, f"the catalog {name}", params={**params, **sized, "pageToken": token})
        code = answer.status_code
        if code == _GONE or (params and code in _NO_PARENTS):
            return
        if code in DENIED:
            raise AccessDenied(
                f"Cannot list the catalog {name}: it answered {code}: {connection.reason(answer)}"
            )
        if code != requests.codes.ok:
            raise no_answer(name, f"it answered {code}: {connection.reason(answer)}")
        document = object_of(answer)
        found = document.get(field)
        if not isinstance(found, list):
            raise no_answer(name, f"its answer has no {field}")
        yield from found
        following = document.get("next-page-token")
        if not isinstance(following, str) or not following:
            return
        if following in seen:
            raise no_answer(name, "its pages do not end: one names an earlier one as the next")
        seen.add(following)
        token = following


def _encoded(connection: RestConnection, levels: Sequence[str]) -> str:
    return connection.catalog._encode_namespace_path(tuple(levels))  # noqa: SLF001 - by the server's own separator


def _joined(connection: RestConnection, levels: Sequence[str]) -> str:
    """Levels as the query has them, which is encoded once more."""
    return unquote(_encoded(connection, levels))


CATALOG: Final = RestCatalog
