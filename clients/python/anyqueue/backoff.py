"""Pauses between failed attempts."""

import random

FIRST = 0.1
MOST = 10.0


class Backoff:
    """Pauses that double up to `MOST` seconds, each randomly shortened by up to half, so that clients that failed together do not
    return together."""

    def __init__(self) -> None:
        self._next = FIRST

    def pause(self) -> float:
        """Returns the next pause, in seconds."""
        pause, self._next = self._next, min(2 * self._next, MOST)
        return pause * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Starts again with the shortest pause, after an attempt has succeeded."""
        self._next = FIRST
