"""What holds for all tests: how fast the machine is says nothing about the code, and every run tries the same examples."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support.shared import EXAMPLES

settings.register_profile(
    "make check", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("make test", settings.get_profile("make check"), max_examples=EXAMPLES // 4)
settings.load_profile("make check")


def pytest_configure(config: pytest.Config) -> None:
    """Try a quarter of the examples where the long tests are left out; before any test is imported."""
    if config.option.markexpr == "not long":
        settings.load_profile("make test")
