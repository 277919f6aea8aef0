"""Fixtures that several test modules use."""

from __future__ import annotations

from tests.servers import postgres_database, postgres_server, s3_server

__all__ = ["postgres_database", "postgres_server", "s3_server"]
