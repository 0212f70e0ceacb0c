"""Clocks that a test moves."""

import time


class Clock:
    """Seconds of `time.monotonic` that the test moves."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


class StoreClock:
    """Microseconds that the test moves. They begin at the store's time, by which its records expire."""

    def __init__(self) -> None:
        self.us = time.time_ns() // 1000

    def __call__(self) -> int:
        return self.us
