"""Suites of tests that say what storages, catalogs and engines promise, for authors of plug-ins: they need pytest."""

import pytest

pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in ("storages", "catalogs", "listings", "delta_logs", "engines", "rewriting")
    )
)
