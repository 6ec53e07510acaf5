"""Pauses between attempts that fail."""

import random

FIRST = 0.1
MOST = 10.0


class Backoff:
    """Pauses that double up to `MOST` seconds, each shortened by up to a half by chance: what failed together does not come back together."""

    def __init__(self) -> None:
        self._next = FIRST

    def pause(self) -> float:
        """The next one, in seconds."""
        pause, self._next = self._next, min(2 * self._next, MOST)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._next = FIRST
