"""The options of storages on S3: the names that Iceberg, PyIceberg and s3fs give them, and the parameters they mean."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import urlencode

from iceberg_cli.errors import UsageError
from iceberg_cli.storage.declarations import StorageOptions
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
_KEY_VARIABLES: Final = {
    "AWS_ACCESS_KEY_ID": "client.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "client.secret-access-key",
    "AWS_SESSION_TOKEN": "client.session-token",
}
# Variables, the option that they give, and other names of that option.
_VARIABLES: Final = (
    (("AWS_REGION", "AWS_DEFAULT_REGION"), "client.region", ("region", "s3.region")),
    (("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "s3.endpoint", ("endpoint_url",)),
)
_TRUE: Final = frozenset({"1", "true", "yes"})
_FALSE: Final = frozenset({"", "0", "false", "no"})

_DELETES: Final = "s3.delete-enabled"
_DELETE_BATCH: Final = "s3.delete.batch-size"
_TAG_THREADS: Final = "s3.delete.num-threads"
_DELETE_TAGS: Final = "s3.delete.tags."
_WRITE_TAGS: Final = "s3.write.tags."
# Names of tags have capitals, unlike those of options.
TAGS: Final = (_DELETE_TAGS, _WRITE_TAGS)
DELETES_OFF: Final = f"{_DELETES}=false"
_MOST_IN_BATCH: Final = 1_000  # by the protocol
_ACL: Final = "s3.acl"
_ACLS: Final = (
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
    "log-delivery-write",
)
_STORAGE_CLASS: Final = "s3.write.storage-class"
_ARCHIVES: Final = ("GLACIER", "DEEP_ARCHIVE")  # nothing is read there before it is restored
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
        written: further parameters of requests that write an object, by botocore's names.
        deletes: whether deletions delete.
        delete_tags: that an object gets before it is deleted, or in place of that.
        delete_batch: objects in one request that deletes.
        tag_threads: requests at once that tag; None: as many as for anything else.
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
    written: Mapping[str, str]
    deletes: bool
    delete_tags: Mapping[str, str]
    delete_batch: int
    tag_threads: int | None
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
            access_points=_below(_ACCESS_POINT, options),
            written=_written(options),
            deletes=deletes(options),
            delete_tags=_below(_DELETE_TAGS, options),
            delete_batch=_number(options, _DELETE_BATCH, most=_MOST_IN_BATCH) or _MOST_IN_BATCH,
            tag_threads=_number(options, _TAG_THREADS),
            secrets=(
                *(options[name] for name in (*_SECRETS, "s3.sse.key") if name in options),
                # Those of other services too, whatever they are doing here.
                *secrets_of({name: value for name, value in options.items() if name not in KEY_IDS}),
            ),
        )


def with_table_tags(options: Mapping[str, str], *, namespace: str, table: str) -> dict[str, str]:
    """The options with the tags that a Glue catalog gives each file of a table, where they ask for these."""
    found = dict(options)
    if _is_true(options, "s3.write.table-tag-enabled"):
        found[f"{_WRITE_TAGS}iceberg.table"] = table
    if _is_true(options, "s3.write.namespace-tag-enabled"):
        found[f"{_WRITE_TAGS}iceberg.namespace"] = namespace
    return found


def deletes(options: Mapping[str, str]) -> bool:
    """Whether deletions delete.

    Raises:
        UsageError: the option has a value that it cannot have.
    """
    return _is_true(options, _DELETES, otherwise=True)


class S3StorageOptions(StorageOptions):
    """See `StorageOptions`."""

    def from_environment(self, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
        """See `StorageOptions`."""
        found = dict(options)
        if not KEY_OPTIONS & found.keys():
            found |= {
                option: environment[name] for name, option in _KEY_VARIABLES.items() if environment.get(name)
            }
        for names, option, others in _VARIABLES:
            values = [environment[name] for name in names if environment.get(name)]
            if values and option not in found and not found.keys() & set(others):
                found[option] = values[0]
        return found

    def replaced_by(self, options: Collection[str], over: Collection[str]) -> Collection[str]:  # noqa: ARG002
        """See `StorageOptions`."""
        return {*KEY_OPTIONS, EXPIRES_AT_MS} if KEY_IDS.intersection(over) else ()

    def unwritable_reason(
        self, options: Mapping[str, str], *, takes_soft_deletions: Callable[[], bool]
    ) -> str | None:
        """See `StorageOptions`."""
        if (storage_class := options.get(_STORAGE_CLASS, "").upper()) in _ARCHIVES:
            return (
                f"{_STORAGE_CLASS}={storage_class}: what is written there cannot be read before it is restored, and a"
                " table's metadata is read at once. Set a class that is read without that, or let a lifecycle rule of"
                " the bucket move data files"
            )
        if deletes(options) or takes_soft_deletions():
            return None
        return (
            f"{DELETES_OFF} turns deletions off, and the storage of a package that is installed for S3 does not know"
            " that: it would delete"
        )


OPTIONS: Final = S3StorageOptions()


def _below(prefix: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a prefix, without it."""
    found = {name.removeprefix(prefix): value for name, value in options.items() if name.startswith(prefix)}
    if "" in found:
        raise UsageError(
            f"Cannot use the storage option {prefix}={found['']}: nothing is named after the dot."
        )
    return found


def _number(options: Mapping[str, str], name: str, *, most: int | None = None) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= (most or int(text))):
        what = "a number from 1 on" if most is None else f"a number from 1 to {most:,}"
        raise UsageError(f"Cannot use the storage option {name}={text}: it is {what}.")
    return int(text)


def _written(options: Mapping[str, str]) -> dict[str, str]:
    """The parameters of requests that write an object: its tags, its access control list, its storage class."""
    found: dict[str, str] = {}
    if tags := _below(_WRITE_TAGS, options):
        found["Tagging"] = urlencode(tags)
    if acl := options.get(_ACL):
        if acl not in _ACLS:
            raise UsageError(f"Cannot use the storage option {_ACL}={acl}: it is one of {', '.join(_ACLS)}.")
        found["ACL"] = acl
    if storage_class := options.get(_STORAGE_CLASS):
        found["StorageClass"] = storage_class.upper()
    return found


def _is_true(options: Mapping[str, str], *names: str, otherwise: bool = False) -> bool:
    for name in names:
        if name in options:
            value = options[name].lower()
            if value not in _TRUE | _FALSE:
                raise UsageError(
                    f"Cannot use the storage option {name}={options[name]}: it is true or false."
                )
            return value in _TRUE
    return otherwise


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
