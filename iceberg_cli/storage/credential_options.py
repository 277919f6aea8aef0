"""Options of storages that come from several places: credentials of one service are taken together or not at all."""

from __future__ import annotations

from collections.abc import Mapping

from iceberg_cli.storage.declarations import declarations


def with_options(options: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """Options, and others that come before them.

    A secret, a token and their end belong to the key that they came with: where `over` has credentials of a service,
    none of `options` for that service is left.
    """
    kept = dict(options)
    for each in declarations():
        if (own := each.storage_options()) is not None:
            replaced = own.replaced_by(kept.keys(), over.keys())
            kept = {name: text for name, text in kept.items() if name not in replaced}
    return {**kept, **over}


def with_environment(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options, completed from this process's environment.

    Keys are taken together or not at all: a token belongs to its key.
    """
    found = dict(options)
    for each in declarations():
        if (own := each.storage_options()) is not None:
            found = own.from_environment(found, environment)
    return found
