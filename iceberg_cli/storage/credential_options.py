"""Options of storages that come from several places: credentials of one service are taken together or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_cli.storage import azure_options, gcs_options, s3_options


def with_options(options: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """Options, and others that come before them.

    A secret, a token and their end belong to the key that they came with: where `over` has credentials of a service,
    none of `options` for that service is left.
    """
    kept = dict(options)
    if s3_options.KEY_IDS & over.keys():
        dropped = {*s3_options.KEY_OPTIONS, s3_options.EXPIRES_AT_MS}
        kept = {name: text for name, text in kept.items() if name not in dropped}
    if gcs_options.CREDENTIAL_OPTIONS & over.keys():
        kept = {name: text for name, text in kept.items() if name not in gcs_options.CREDENTIAL_OPTIONS}
    if any(map(azure_options.is_credential, over)):
        kept = {name: text for name, text in kept.items() if not azure_options.is_credential(name)}
    return {**kept, **over}
