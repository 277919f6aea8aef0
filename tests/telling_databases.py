"""A server that asks for a password in plain text, and whose refusal tells all that it was sent.

It speaks as much of PostgreSQL's and of MySQL's protocol as comes before the first statement.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Spec: PostgreSQL, "Message Formats": SSLRequest and GSSENCRequest.
_ENCRYPTION_REQUESTS: Final = frozenset({80877103, 80877104})
_NO_ENCRYPTION: Final = b"N"
_PASSWORD_IN_PLAIN_TEXT: Final = b"R" + (8).to_bytes(4, "big") + (3).to_bytes(4, "big")

# Spec: MySQL, "Connection Phase Packets". Capabilities: 4.1, plugins' names, and none of encryption.
_CAPABILITIES: Final = 0x00000001 | 0x00000008 | 0x00000200 | 0x00008000 | 0x00080000
_PLUGIN: Final = b"mysql_clear_password"
_GREETING: Final = (
    b"\x0a8.0.0\0" + (1).to_bytes(4, "little") + b"12345678\0"
    + (_CAPABILITIES & 0xFFFF).to_bytes(2, "little") + b"\x2d" + (2).to_bytes(2, "little")
    + (_CAPABILITIES >> 16).to_bytes(2, "little") + b"\x15" + bytes(10) + b"123456789012\0" + _PLUGIN + b"\0"
)  # fmt: skip
_ASK_BY_PLUGIN: Final = b"\xfe" + _PLUGIN + b"\0" + b"12345678901234567890\0"


def postgresql_error(text: str, *, sql_state: bytes = b"28P01") -> bytes:
    """An ErrorResponse with this message. Spec: PostgreSQL, "Message Formats"."""
    fields = b"SFATAL\0VFATAL\0C" + sql_state + b"\0M" + text.encode() + b"\0\0"
    return b"E" + (4 + len(fields)).to_bytes(4, "big") + fields


def mysql_error(text: str, *, code: int = 1045, sql_state: bytes = b"28000", number: int = 1) -> bytes:
    """An ERR_Packet with this message, as the packet of a number. Spec: MySQL, "ERR_Packet"."""
    return _packet(number, b"\xff" + code.to_bytes(2, "little") + b"#" + sql_state + text.encode())


def _packet(number: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


def _in_words(data: bytes) -> str:
    """What was sent, as one line."""
    return f"why: {data.decode('latin-1')}".replace("\0", " ")


class _Postgresql(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while True:
            length = int.from_bytes(self.rfile.read(4), "big")
            startup = self.rfile.read(length - 4) if length else b""
            if int.from_bytes(startup[:4], "big") not in _ENCRYPTION_REQUESTS:
                break
            self.wfile.write(_NO_ENCRYPTION)
        if not startup:
            return
        self.wfile.write(_PASSWORD_IN_PLAIN_TEXT)
        self.rfile.read(1)
        password = self.rfile.read(int.from_bytes(self.rfile.read(4), "big") - 4)
        self.wfile.write(postgresql_error(_in_words(startup[4:] + password)))


class _Mysql(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(_packet(0, _GREETING))
        login = self._received()
        self.wfile.write(_packet(2, _ASK_BY_PLUGIN))
        self.wfile.write(mysql_error(_in_words(login[32:] + self._received()), number=4))

    def _received(self) -> bytes:
        return self.rfile.read(int.from_bytes(self.rfile.read(4)[:3], "little"))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def telling_database(backend: str) -> Iterator[int]:
    """The port of loopback that a server listens at.

    Args:
        backend: postgresql or mysql.
    """
    handler = {"postgresql": _Postgresql, "mysql": _Mysql}[backend]
    with _Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_address[1]
        server.shutdown()
