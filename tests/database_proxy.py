"""A TCP port before a database's server, which can lose the answer to a COMMIT."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import parse_qs

import sqlalchemy as sa

from tests.telling_databases import mysql_error, postgresql_error

COMMIT = re.compile(rb"(?<!AUTO)COMMIT(?!TED)")


class Proxy:
    """Between a client and a database. Armed, it cuts the connection at the client's next COMMIT.

    Args:
        uri: of the database: on a UNIX socket, or on a port of loopback.
        deliver: whether that COMMIT reaches the database before; None: it is never armed.
        error: what the client gets in place of the database's answer before the connection is cut.
        meanwhile: done at that COMMIT, after its effect if it has one, before the connection is cut.
    """

    def __init__(
        self,
        uri: str,
        *,
        deliver: bool | None = None,
        error: bytes = b"",
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.upstream = _upstream_of(uri)
        self.deliver = deliver
        self.error = error
        self.meanwhile = meanwhile
        self.armed = deliver is not None
        self.muted: socket.socket | None = None
        self.answered = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = self._connected()
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            threading.Thread(target=self._return, args=(client, server), daemon=True).start()

    def _connected(self) -> socket.socket:
        if isinstance(self.upstream, int):
            return socket.create_connection(("127.0.0.1", self.upstream))
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.upstream)
        return server

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):  # the database ended the connection
            self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        while data := self._received(client):
            if self.armed and COMMIT.search(data):
                self.armed = False
                self.muted = server  # from here on the client hears nothing
                if self.deliver:
                    server.sendall(data)
                    assert self.answered.wait(60)
                self.meanwhile()
                if self.error:
                    client.sendall(self.error)
                client.shutdown(socket.SHUT_RDWR)
                break
            server.sendall(data)
        server.shutdown(socket.SHUT_RDWR)

    def _return(self, client: socket.socket, server: socket.socket) -> None:
        while data := self._received(server):
            if self.muted is server:
                self.answered.set()
                return
            try:
                client.sendall(data)
            except OSError:
                return

    def _received(self, connection: socket.socket) -> bytes:
        try:
            return connection.recv(65536)
        except OSError:
            return b""


@contextmanager
def jdbc_url_of_postgresql(uri: str) -> Iterator[str]:
    """The URL, for Java, of a database on a UNIX socket: Java's driver does not speak over one."""
    url = sa.make_url(uri)
    proxy = Proxy(uri)
    user = f"user={url.username}&sslmode=disable"
    yield f"jdbc:postgresql://127.0.0.1:{proxy.port}/{url.database}?{user}"
    proxy.close()


def through(proxy: Proxy, uri: str) -> str:
    """The same database through the proxy."""
    return at_port(proxy.port, uri)


def at_port(port: int, uri: str) -> str:
    """The same database by a port of loopback."""
    url = sa.make_url(uri).set(host="127.0.0.1", port=port)
    if url.get_backend_name() == "postgresql":
        query = {key: value for key, value in url.query.items() if key != "host"}
        url = url.set(query={**query, "sslmode": "disable", "gssencmode": "disable"})
    return url.render_as_string(hide_password=False)


# Answers of servers that are being shut down, which may be given after a COMMIT took effect.
ERRORS = {
    "postgresql": postgresql_error("terminating connection due to administrator command", sql_state=b"57P01"),
    "mysql": mysql_error("Server shutdown in progress", code=1053, sql_state=b"08S01"),
}


def _upstream_of(uri: str) -> str | int:
    url = sa.make_url(uri)
    if url.port is not None:
        return url.port
    folder = parse_qs(uri.partition("?")[2])["host"][0]
    [name] = [name for name in os.listdir(folder) if re.fullmatch(r"\.s\.PGSQL\.\d+", name)]
    return f"{folder}/{name}"
