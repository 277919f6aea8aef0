"""How often and how soon a refused commit is tried again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """`commit.retry.*`, in attempts and ms."""

    attempts: int
    min_wait_ms: int
    max_wait_ms: int
    total_timeout_ms: int

    def waits_ms(self) -> Iterator[float]:
        """How long to wait before each further attempt: doubling, with up to 10 % of jitter."""
        wait_ms, waited_ms = float(self.min_wait_ms), 0.0
        for _ in range(self.attempts - 1):
            jittered = min(wait_ms, self.max_wait_ms) * (1 + random.random() / 10)  # noqa: S311 - no secret
            if waited_ms + jittered > self.total_timeout_ms:
                return
            waited_ms += jittered
            wait_ms *= 2
            yield jittered
