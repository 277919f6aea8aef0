"""Reads of objects in S3 by obstore, for which a request takes a tenth of the processor time that botocore needs."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.util import find_spec
from random import random
from typing import TYPE_CHECKING, Any, Final

from fsspec.asyn import sync

from iceberg_cli.storage.backoff import backoff_s
from iceberg_cli.storage.s3.options import S3Options

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3Store
    from s3fs import S3FileSystem

_ANY_CLIENT_READS: Final = re.compile(r"[A-Za-z0-9_.=-]+(?:/[A-Za-z0-9_.=-]+)*")  # character for character
_DOTS: Final = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")
# What such options add to a request that reads, obstore does not send.
_OF_READS: Final = frozenset({"SSECustomerAlgorithm", "RequestPayer", "ExpectedBucketOwner"})
_MOST_FAILURES: Final = 8  # one after another: be it a proxy or a certificate, it does not pass
_GOOD_FOR: Final = timedelta(minutes=5)


class ObjectReads:
    """Reads of plain keys under plain options. Whatever fails is left to botocore, which tells why, or reads it.

    Args:
        options: see `can_serve`.
        files: a connection under these options, from which the endpoint and the credentials are.
    """

    def __init__(self, options: S3Options, files: S3FileSystem) -> None:
        self._failures = 0

        def credentials() -> S3Credential:
            key, secret, token = options.key, options.secret, options.token
            if key is None or secret is None:
                # Those of the environment, which botocore renews by itself.
                found = sync(files.loop, _credentials_of, files)
                key, secret, token = found.access_key, found.secret_key, found.token
            ends_at = datetime.now(UTC) + _GOOD_FOR  # noqa: TID251 - obstore compares it with its own clock
            return {"access_key_id": key, "secret_access_key": secret, "token": token, "expires_at": ends_at}

        @cache
        def store_of(bucket: str) -> S3Store:
            from obstore.store import S3Store

            client = sync(files.loop, files.set_session)
            # What is not named here, obstore takes from the environment.
            return S3Store(
                bucket,
                config={
                    "endpoint": client.meta.endpoint_url,
                    "aws_endpoint_url_s3": client.meta.endpoint_url,
                    "region": client.meta.region_name,
                    "virtual_hosted_style_request": False,
                    "skip_signature": options.anon,
                    "s3_express": False,
                },
                client_options={"allow_http": True, "read_timeout": "60s", "timeout": "1h"},
                retry_config={"max_retries": 0},
                credential_provider=None if options.anon else credentials,
            )

        self._store_of = store_of

    @staticmethod
    def can_serve(options: S3Options) -> bool:
        """Whether obstore is here, as it need not be, and sends the requests that these options mean."""
        return find_spec("obstore") is not None and not (
            options.access_points
            or options.is_signed_remotely
            or options.addressing_style == "virtual"
            or _OF_READS & options.parameters.keys()
        )

    def read(self, bucket: str, key: str, span: tuple[int, int] | None) -> bytes | None:
        """The object, or its bytes of this offset and length; None where botocore has to read it.

        Args:
            bucket: its name.
            key: of the object.
            span: offset and length in bytes, at least 1; None: all of it.
        """
        import obstore
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

        if self._failures >= _MOST_FAILURES or not _ANY_CLIENT_READS.fullmatch(key) or _DOTS.search(key):
            return None
        try:
            store = self._store_of(bucket)
            if span is None:
                found = obstore.get(store, key).bytes()
            else:
                found = obstore.get_range(store, key, start=span[0], length=span[1])
        except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
            return None
        except (BaseError, OSError, ValueError):
            self._failures += 1
            # Perhaps the service has too many requests; obstore does not tell.
            time.sleep(backoff_s(1, throttled=True, share=random()) or 0)  # noqa: S311 - it spreads requests over time
            return None
        self._failures = 0
        return found.to_bytes()


async def _credentials_of(files: S3FileSystem) -> Any:
    """The credentials that botocore found, as they are now.

    Raises:
        ValueError: it found none.
    """
    await files.set_session()
    found = await files.session.get_credentials()
    if found is None:
        raise ValueError("no credentials")
    return await found.get_frozen_credentials()
