"""Tables on which processes die or others get in between, and the tests that every verb on them passes."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.suite")
