"""Waiting for what another process or task does: a test polls here and sleeps nowhere else."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

Answer = TypeVar("Answer")

LONGEST_S = 60.0  # a machine can stall
PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.05


def within(seconds: float, holds: Callable[[], object]) -> bool:
    """Wait until a condition holds, and return whether it did in this time. Pauses grow: many looks cost the other's CPU."""
    began = time.monotonic()
    while not holds():
        if (waited := time.monotonic() - began) > seconds:
            return False
        time.sleep(min(max(PAUSE_S, waited / 10), LONGEST_PAUSE_S))
    return True


def eventually(holds: Callable[[], object], seconds: float = LONGEST_S) -> None:
    """Wait until a condition holds. Raises AssertionError if it never does."""
    assert within(seconds, holds), f"not within {seconds} s"


def ask_until(ask: Callable[[], Answer], wanted: Callable[[Answer], object]) -> Answer:
    """Ask until the answer is the wanted one, and return it. Raises AssertionError with the last answer."""
    answers: list[Answer] = []

    def holds() -> object:
        answers[:] = [ask()]
        return wanted(answers[0])

    assert within(LONGEST_S, holds), f"the last answer was {answers[0]!r}"
    return answers[0]


def log_says(log: Path, text: str, times: int = 1) -> str:
    """Wait until a log has a text this often, and return all of it: its writer may be in the middle of a line."""
    return ask_until(lambda: log.read_text("utf-8", "replace"), lambda said: said.count(text) >= times)


async def until(holds: Callable[[], object | Awaitable[object]], seconds: float = LONGEST_S) -> None:
    """Wait until a condition holds, while the event loop runs. Raises TimeoutError if it never does."""
    async with asyncio.timeout(seconds):
        while True:
            held = holds()
            if await held if isinstance(held, Awaitable) else held:
                return
            await asyncio.sleep(PAUSE_S / 4)
