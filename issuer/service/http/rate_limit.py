"""The rates of a caller as header fields (draft-ietf-httpapi-ratelimit-headers-11): what each allows, and what is left.

A rate lets through `burst` requests at once, and gives them back at its steady pace. So its quota is the burst, and its
window the time in which all of that comes back; what is left comes from the store's answer to this very request, and is
absent where the store was not asked for it: a repeat spends no rate.
"""

from __future__ import annotations

from collections.abc import Iterable

from issuer.limits import Rate, RateState

POLICY, LEFT = NAMES = "RateLimit-Policy", "RateLimit"


def rate_limit(rates: Iterable[RateState]) -> dict[str, str]:
    """Return both header fields, or none where no rate is known."""
    states = tuple(rates)
    if not states:
        return {}
    policies = [f'"{state.name}";q={state.rate.burst};w={_window_s(state.rate)}' for state in states]
    left = [f'"{state.name}";r={remaining(state)};t={_seconds(state.ahead_us)}' for state in states]
    return {POLICY: ", ".join(policies), LEFT: ", ".join(left)}


def remaining(state: RateState) -> int:
    """Return how many requests fit at once, as `limits.spend` judges them."""
    return max(0, (state.rate.tolerance_us - max(0, state.ahead_us)) // state.rate.interval_us)


def _window_s(rate: Rate) -> int:
    return max(1, _seconds(rate.tolerance_us))


def _seconds(microseconds: int) -> int:
    return max(0, -(-microseconds // 1_000_000))
