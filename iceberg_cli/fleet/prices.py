"""What storage and requests cost, and so what a table that nobody cares for costs a month."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from iceberg_cli.errors import UsageError
from iceberg_cli.plan.text import did_you_mean

_GIGABYTE: Final = 10**9
_NUMBERS: Final = ("storage-gb-month", "requests-1000", "scans-per-month")


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of one storage.

    Args:
        currency: as it is shown.
        storage_gb_month: of 10^9 bytes kept for a month.
        requests_1000: of a thousand reads.
        scans_per_month: how often a table is read whole, each of its manifests by one request.
    """

    currency: str
    storage_gb_month: float
    requests_1000: float = 0.0
    scans_per_month: float = 0.0

    def cost(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The field `cost` of a row of `fleet/1`: what maintenance that is due would save each month.

        That is the storage of what it frees, and the requests for manifests beyond those that would do.
        """
        freed = sum(each["bytes"] or 0 for each in row["due"] if not each["blocked_by"])
        manifests, ratio = row["manifests"], row["manifest_target_ratio"]
        spare = manifests - manifests / ratio if manifests and ratio and ratio > 1 else 0.0
        requests = spare * self.scans_per_month * self.requests_1000 / 1_000
        return {
            "currency": self.currency,
            "month": round(freed / _GIGABYTE * self.storage_gb_month + requests, 6),
        }


def load_prices(path: str) -> Prices:
    """Read a file of prices: TOML with `currency`, `storage-gb-month`, and perhaps `requests-1000`, `scans-per-month`.

    Raises:
        UsageError: it cannot be read, or a key is unknown, missing or no price.
    """
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"Cannot read the prices in {path}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"Cannot read the prices in {path}: {' '.join(str(error).split())}") from error
    known = ("currency", *_NUMBERS)
    for key in given:
        if key not in known:
            raise UsageError(f"{path}: {key} is no price.{did_you_mean(key, known)}")
    currency = given.get("currency")
    if not isinstance(currency, str) or not currency:
        raise UsageError(f'{path}: currency must be a text, such as "USD"')
    if _NUMBERS[0] not in given:
        raise UsageError(f"{path}: {_NUMBERS[0]} is missing")
    for key in _NUMBERS:
        value = given.get(key, 0.0)
        if type(value) not in (int, float) or not 0 <= value < float("inf"):
            raise UsageError(f"{path}: {key} must be a number that is not negative, not {value!r}")
    return Prices(
        currency=currency, **{key.replace("-", "_"): float(given[key]) for key in _NUMBERS if key in given}
    )
