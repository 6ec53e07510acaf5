"""Pulls for a worker, and releases tasks that it does not begin."""

import logging
import threading
import time
from typing import Callable, List, Optional

from .backoff import Backoff
from .client import Client, Json
from .problem import Problem
from .task import Task

LOG = logging.getLogger("anyqueue")
# The most messages of one pull, so that an answer with messages of the largest size can be read.
MAX_PULL = 10


class Puller:
    """Pulls, with pauses after failures. One thread pulls; others may `cut` or `stop` it."""

    def __init__(
        self, connect: Callable[[], Client], name: str, partitions: List[str], wait: float, lease: Optional[float]
    ) -> None:
        self._connect = connect
        self._client = connect()
        self._name, self._partitions, self._wait, self._lease = name, partitions, wait, lease
        self._received: Optional[str] = None
        self._backoff = Backoff()
        self._stopped = threading.Event()
        self._cut = False
        # Until when tasks may be released: set before the stop.
        self.deadline = 0.0

    def stop(self) -> None:
        """Ends a waiting pull, for good."""
        self._stopped.set()
        self.cut()

    def cut(self) -> None:
        """Ends a waiting pull, and those that follow until `renew`."""
        self._cut = True
        self._client.interrupt()

    def renew(self) -> None:
        """Lets pulls wait again. Must not be called at the same time as `cut`."""
        if self._cut and not self._stopped.is_set():
            self._client.close()
            self._client, self._cut = self._connect(), False

    def close(self) -> None:
        self._client.close()

    def pull(self, free: int) -> List[Json]:
        """Returns up to this many messages; none if the pull failed or was stopped."""
        try:
            return self._ask(self._client, min(free, MAX_PULL), self._wait)
        except Problem as problem:
            if self._cut:
                return self._ask_again()
            if _is_final(problem):
                raise
            LOG.warning("could not pull: %s", problem)
            self._stopped.wait(self._backoff.pause())
            return []

    def _ask(self, client: Client, most: int, wait: float) -> List[Json]:
        pulled = client.pull(self._partitions, most, wait, self._lease, self._name, self._received)
        self._backoff.reset()
        if pulled["deliveries"]:
            self._received = pulled["pull"]
        messages: List[Json] = pulled["deliveries"]
        return messages

    def _ask_again(self) -> List[Json]:
        """Pulls once more after an answer was cut off, as it may have had messages: a pull that names the last answer that was
        received brings them back."""
        try:
            with self._connect() as client:
                return self._ask(client, 1, 0.0)
        except Problem as problem:
            LOG.warning("could not ask what was sent last; it comes again when its lease ends: %s", problem)
            return []

    def release(self, tasks: List[Task]) -> None:
        """Releases tasks untouched, if the service can be reached until the deadline; otherwise they go back when their leases
        end."""
        backoff = Backoff()
        with self._connect() as client:
            while tasks:
                left = self.deadline - time.monotonic()
                try:
                    ends = [{"delivery": task.delivery, "status": "waiting"} for task in tasks]
                    answers = client.settle(*ends, timeout=max(1.0, left))
                    tasks = [task for task, answer in zip(tasks, answers) if answer["outcome"] == "error"]
                except Problem as problem:
                    LOG.warning("could not release what had not begun: %s", problem)
                pause = backoff.pause()
                if time.monotonic() + pause >= self.deadline:
                    return
                if tasks:
                    time.sleep(pause)


def _is_final(problem: Problem) -> bool:
    """Whether the service itself says that a repetition never helps. It does not count if something in between, such as a proxy,
    reports that the service is away."""
    refused = 400 <= problem.status < 500 or problem.status == 501
    return refused and problem.retry == "never" and problem.kind != "unknown"
