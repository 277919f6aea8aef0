"""Remote signing: the catalog signs each request to a table's storage, and gives no credentials.

No signature is used twice: the specification lets an answer be kept for requests of the same method and URI, and these
need not mean the same, for their headers and bodies differ.

Spec: Iceberg REST catalog specification, `signRequest`, `LoadTableResult`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import requests

from iceberg_cli.errors import AccessDenied, BackendUnavailable
from iceberg_cli.iceberg.catalogs.rest.client import ConnectedTable, Loaded, RestClient
from iceberg_cli.iceberg.catalogs.rest.connection import NoAnswer, object_of, text_of
from iceberg_cli.storage import RequestToSign, SignedRequest

_PROVIDER: Final = "s3"
_ENDED: Final = frozenset({401, 419})


@dataclass(kw_only=True)
class RemoteSigner(ConnectedTable):
    """Has a catalog sign requests to one table's storage.

    Args:
        loaded: what the catalog said of the table.
    """

    loaded: Loaded | None = field(default=None, repr=False)

    def __call__(self, request: RequestToSign) -> SignedRequest:
        """The request as it may be sent.

        Raises:
            AccessDenied: the catalog does not sign it. BackendUnavailable, TableNotFound.
        """
        client, loaded = self.connected(), self.loaded
        if loaded is None:
            loaded = self.loaded = client.load()
        answer = self._ask(client, loaded, request)
        if answer.status_code in _ENDED:  # tokens end, the catalog's and the table's own
            if self.loaded is loaded:  # else another thread has asked for new ones
                self.loaded = client.load()
            loaded = self.loaded or loaded
            answer = self._ask(client, loaded, request)
        if answer.status_code == requests.codes.ok:
            return _signed(answer)
        words = f"the catalog did not sign the request, {answer.status_code}: {client.reason(answer)}"
        if answer.status_code < 500 and answer.status_code != requests.codes.too_many_requests:
            raise AccessDenied(words)
        raise BackendUnavailable(words)

    def _ask(self, client: RestClient, loaded: Loaded, request: RequestToSign) -> requests.Response:
        document: dict[str, Any] = {
            "method": request.method,
            "region": request.region,
            "uri": request.url,
            "headers": {name: [value] for name, value in request.headers.items()},
            "provider": _PROVIDER,
        }
        if request.body is not None:
            document["body"] = request.body
        if loaded.signing.properties:
            document["properties"] = dict(loaded.signing.properties)
        try:
            return client.sign(json.dumps(document).encode(), loaded)
        except NoAnswer as error:
            raise BackendUnavailable(f"the catalog did not sign the request: {error}") from error


def _signed(answer: requests.Response) -> SignedRequest:
    document = object_of(answer)
    headers = document.get("headers")
    if not isinstance(headers, Mapping) or not all(isinstance(values, list) for values in headers.values()):
        raise BackendUnavailable("Cannot use the catalog's answer: it has no headers of a signed request")
    return SignedRequest(
        url=text_of(document, "uri"),
        headers={str(name): ", ".join(map(str, values)) for name, values in headers.items()},
    )
