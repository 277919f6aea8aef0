"""The options of storages on S3: the names that Iceberg, PyIceberg and s3fs give them, and the parameters they mean."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from iceberg_cli.errors import UsageError
from iceberg_cli.storage.redaction import secrets_of

_NAMES: Final = {
    "endpoint_url": ("endpoint_url", "s3.endpoint"),
    "key": ("key", "s3.access-key-id", "client.access-key-id"),
    "secret": ("secret", "s3.secret-access-key", "client.secret-access-key"),
    "token": ("token", "s3.session-token", "client.session-token"),
    "region": ("region", "s3.region", "client.region"),
}
KEY_IDS: Final = frozenset(_NAMES["key"])
_SECRETS: Final = (*_NAMES["secret"], *_NAMES["token"])
# By which requests are signed, or not at all.
_REMOTE_SIGNING: Final = "s3.remote-signing-enabled"
KEY_OPTIONS: Final = frozenset({*KEY_IDS, *_SECRETS, "anon", "s3.anonymous", _REMOTE_SIGNING})
EXPIRES_AT_MS: Final = "s3.session-token-expires-at-ms"
_ACCESS_POINT: Final = "s3.access-points."
_TRUE: Final = frozenset({"1", "true", "yes"})
_FALSE: Final = frozenset({"", "0", "false", "no"})

# `s3.sse.type` of Iceberg, and the header `x-amz-server-side-encryption` that it means.
_ALGORITHMS: Final = {"s3": "AES256", "kms": "aws:kms", "dsse-kms": "aws:kms:dsse"}
_SSE_TYPES: Final = ("none", *_ALGORITHMS, "custom")
_KEY_BYTES: Final = 32  # of AES-256


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """What the options say; None where they say nothing and botocore looks in the environment.

    Args:
        endpoint_url: of the service.
        key: the access key's id; `secret` and `token` belong to it.
        secret: of the access key.
        token: of a session.
        region: of the buckets.
        anon: whether requests are not signed.
        is_signed_remotely: whether a catalog signs them.
        addressing_style: whether the bucket's name is in the path or in the host; `auto`: in the path at an endpoint
            that is given, in the host elsewhere.
        parameters: of every request that has them, by botocore's names.
        access_points: by the bucket that each stands for: its ARN or its alias.
    """

    endpoint_url: str | None
    key: str | None
    secret: str | None
    token: str | None
    region: str | None
    anon: bool
    is_signed_remotely: bool
    addressing_style: Literal["auto", "path", "virtual"]
    parameters: Mapping[str, str | bytes]
    access_points: Mapping[str, str]
    secrets: tuple[str, ...]

    @classmethod
    def of(cls, options: Mapping[str, str]) -> S3Options:
        """Read the options; those of other names are ignored.

        Raises:
            UsageError: a value is none that the option has.
        """
        found = {
            ours: next((options[name] for name in names if name in options), None)
            for ours, names in _NAMES.items()
        }
        return cls(
            **found,
            anon=_is_true(options, "anon", "s3.anonymous"),
            is_signed_remotely=_is_true(options, _REMOTE_SIGNING),
            addressing_style=_addressing_style(options),
            parameters={**_encryption(options), **_account(options)},
            access_points={
                name.removeprefix(_ACCESS_POINT): value
                for name, value in options.items()
                if name.startswith(_ACCESS_POINT)
            },
            secrets=(
                *(options[name] for name in (*_SECRETS, "s3.sse.key") if name in options),
                # Those of other services too, whatever they are doing here.
                *secrets_of({name: value for name, value in options.items() if name not in KEY_IDS}),
            ),
        )


def _is_true(options: Mapping[str, str], *names: str) -> bool:
    for name in names:
        if name in options:
            value = options[name].lower()
            if value not in _TRUE | _FALSE:
                raise UsageError(
                    f"Cannot use the storage option {name}={options[name]}: it is true or false."
                )
            return value in _TRUE
    return False


def _addressing_style(options: Mapping[str, str]) -> Literal["auto", "path", "virtual"]:
    virtual = _is_true(options, "s3.force-virtual-addressing")
    path = _is_true(options, "s3.path-style-access")
    if virtual and path:
        raise UsageError(
            "Cannot use the storage options s3.force-virtual-addressing=true and s3.path-style-access=true together:"
            " a bucket's name is in the host or in the path."
        )
    return "virtual" if virtual else "path" if path else "auto"


def _account(options: Mapping[str, str]) -> dict[str, str | bytes]:
    """Who pays for requests, and to whom the bucket has to belong."""
    found: dict[str, str | bytes] = {}
    if _is_true(options, "s3.requester-pays", "requester_pays"):
        found["RequestPayer"] = "requester"
    if owner := options.get("s3.expected-bucket-owner"):
        found["ExpectedBucketOwner"] = owner
    return found


def _encryption(options: Mapping[str, str]) -> dict[str, str | bytes]:
    """The parameters of server-side encryption: by Iceberg's options, else by PyIceberg's."""
    if "s3.sse.type" not in options:
        pyiceberg = {
            "ServerSideEncryption": options.get("s3.server-side-encryption"),
            "SSEKMSKeyId": options.get("s3.sse-kms-key-id"),
        }
        return {name: value for name, value in pyiceberg.items() if value}
    kind, key = options["s3.sse.type"].lower(), options.get("s3.sse.key")
    if kind not in _SSE_TYPES:
        raise UsageError(
            f"Cannot use the storage option s3.sse.type={options['s3.sse.type']}: it is one of {', '.join(_SSE_TYPES)}."
        )
    if kind == "none":
        return {}
    if kind == "custom":
        return {
            "SSECustomerAlgorithm": "AES256",
            "SSECustomerKey": _customer_key(key, options.get("s3.sse.md5")),
        }
    found: dict[str, str | bytes] = {"ServerSideEncryption": _ALGORITHMS[kind]}
    return found | {"SSEKMSKeyId": key} if key and kind != "s3" else found


def _customer_key(text: str | None, md5: str | None) -> bytes:
    """The bytes of a customer's key; botocore sends them and their MD5 in Base64."""
    try:
        key = base64.b64decode(text or "", validate=True)
    except binascii.Error:
        key = b""
    if len(key) != _KEY_BYTES:
        raise UsageError(
            "Cannot use the storage option s3.sse.key: with s3.sse.type=custom it is 32 bytes in Base64."
        )
    if md5 and md5 != base64.b64encode(hashlib.md5(key, usedforsecurity=False).digest()).decode():
        raise UsageError(
            "Cannot use the storage option s3.sse.md5: it is not the MD5 of s3.sse.key in Base64."
        )
    return key
