"""Toxiproxy before a real server: what goes through it is held, dropped, or cut off, as a network does it."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest

from tests.go_servers import TOXIPROXY
from tests.servers import free_port, go_binary, running

Trouble = Literal["time-out before", "time-out after", "reset before", "reset after", "late"]
"""`before` the request reaches the server, or after it, when the answer comes back; `late`: the request is held."""

_HELD_MS: Final = 3_600_000
_UP, _DOWN = "upstream", "downstream"
_TOXICS: Final[dict[Trouble, tuple[str, str, dict[str, int]]]] = {
    "time-out before": ("timeout", _UP, {"timeout": 0}),
    "time-out after": ("timeout", _DOWN, {"timeout": 0}),
    "reset before": ("reset_peer", _UP, {"timeout": 0}),
    "reset after": ("reset_peer", _DOWN, {"timeout": 0}),
    "late": ("latency", _UP, {"latency": _HELD_MS}),
}


@dataclass(frozen=True)
class Toxiproxy:
    """A server of proxies."""

    api: str

    @contextmanager
    def before(self, upstream: str) -> Iterator[TroubledPort]:
        """A port before another one, which is given as host and port."""
        name = uuid.uuid4().hex
        settings = {"name": name, "listen": "127.0.0.1:0", "upstream": upstream, "enabled": True}
        made = self.call("POST", "/proxies", settings)
        port = TroubledPort(self, f"/proxies/{name}", made["listen"])
        # Connections end by a reset only where such a toxic is there when they begin, be it one that does nothing.
        for stream in (_UP, _DOWN):
            port.add("reset_peer", stream, {"timeout": 0}, toxicity=0.0)
        yield port
        self.call("DELETE", port.path)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The JSON answer of its interface."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.api}{path}", data, {"User-Agent": "tests"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = answer.read()
        return json.loads(content) if content else None


@dataclass
class TroubledPort:
    """One proxy; `address` is its host and port."""

    server: Toxiproxy
    path: str
    address: str
    trouble: str | None = None  # the name of the toxic at work

    def begin(self, trouble: Trouble) -> None:
        """From now on, on connections that are there as well."""
        assert self.trouble is None
        self.trouble = self.add(*_TOXICS[trouble])

    def end(self) -> None:
        """The network is well again; what was held goes on its way."""
        if self.trouble is not None:
            trouble, self.trouble = self.trouble, None
            self.server.call("DELETE", f"{self.path}/toxics/{trouble}")

    def add(self, kind: str, stream: str, attributes: dict[str, int], *, toxicity: float = 1.0) -> str:
        """Add a toxic; returns its name."""
        name = uuid.uuid4().hex
        toxic = {"name": name, "type": kind, "stream": stream, "toxicity": toxicity, "attributes": attributes}
        self.server.call("POST", f"{self.path}/toxics", toxic)
        return name


@pytest.fixture(scope="session")
def toxiproxy() -> Iterator[Toxiproxy]:
    """A server of proxies that make a network's troubles."""
    with running_toxiproxy() as found:
        yield found


@contextmanager
def running_toxiproxy() -> Iterator[Toxiproxy]:
    """The same, until the context ends."""
    port = free_port()
    command = [str(go_binary(TOXIPROXY)), "-host", "127.0.0.1", "-port", str(port)]
    with running(command, port):
        yield Toxiproxy(f"http://127.0.0.1:{port}")
