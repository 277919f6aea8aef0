"""Tables of benchmarks in a REST catalog."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

NAMESPACE: Final = "db"


class RestTables:
    """The tables of a REST catalog, which are made somewhere else and registered there again and again."""

    def __init__(self, uri: str) -> None:
        """A catalog that has none yet."""
        self._uri = uri
        self._names: set[str] = set()
        self._request("POST", "/v1/namespaces", {"namespace": [NAMESPACE]})

    def register(self, location: str) -> None:
        """Have a table as its first metadata file says, by the name of its folder."""
        name = location.rpartition("/")[2]
        if name in self._names:
            self._request("DELETE", f"/v1/namespaces/{NAMESPACE}/tables/{name}?purgeRequested=false")
        table = {"name": name, "metadata-location": f"{location}/metadata/v1.metadata.json"}
        self._request("POST", f"/v1/namespaces/{NAMESPACE}/register", table)
        self._names.add(name)

    def _request(self, method: str, path: str, body: object = None) -> None:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(f"{self._uri}{path}", data, headers, method=method)):
            pass


def catalog_options(folder: str, uri: str, properties: dict[str, str] | None = None) -> list[str]:
    """Our options for the catalog `prod` at a URI, with a configuration file in a folder."""
    config = Path(f"{folder}/pyiceberg.yaml")
    lines = [
        f"    {name}: {value}" for name, value in {"type": "rest", "uri": uri, **(properties or {})}.items()
    ]
    config.write_text("\n".join(["catalog:", "  prod:", *lines, ""]))
    return ["--catalog-config", str(config)]
