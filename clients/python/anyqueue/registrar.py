"""Tells the service of a worker, and hears what the worker is to do."""

import logging
import os
import socket
import threading
import time
from typing import Callable, List, Optional, Protocol

from .backoff import Backoff
from .client import Client, Json
from .keeper import Keeper
from .problem import Problem
from .task import Task
from .version import VERSION

LOG = logging.getLogger("anyqueue")
# A beat is sent when this part of the time that one counts is over, and has as long to be heard.
PART = 1 / 3
# How long the service gets to hear that the worker has ended, in seconds.
LEAVE = 2.0
# The most tasks that a beat names, and the shortest pause between two beats, in seconds.
MAX_HELD = 512
LEAST_PAUSE = 0.2


class Obeys(Protocol):
    """Who is told."""

    @property
    def state(self) -> str:
        """How it is: `working`, `quiet` or `draining`."""

    def obey(self, order: str) -> None:
        """Does what it is told: `go_on`, `quiet`, `stop` or `recycle`, as often as it is said."""


class Registrar:
    """Registers and beats, in one thread with a connection of its own. A worker whose service keeps no registry works all the same."""

    def __init__(self, connect: Callable[[], Client], name: str, keeper: Keeper, worker: Obeys) -> None:
        self._connect, self._client = connect, connect()
        self._name, self._keeper, self._worker = name, keeper, worker
        self._session: Optional[str] = None
        self._pause = 0.0
        self._changed = threading.Condition()
        self._due = False
        self._ended = False

    def hurry(self) -> None:
        """The worker has changed: the next beat says so at once."""
        with self._changed:
            self._due = True
            self._changed.notify()

    def end(self) -> None:
        """The worker has ended: `run` says so, and ends."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._client.interrupt()

    def run(self, partitions: List[str], slots: int) -> None:
        """Beats until `end`, or until the service says that it registers nobody."""
        backoff = Backoff()
        try:
            while not self._ended:
                try:
                    if self._session is None:
                        self._register(partitions, slots)
                    self._beat()
                    backoff.reset()
                    pause = self._pause
                except Problem as problem:
                    if self._ended or not self._goes_on(problem):
                        return
                    pause = 0.0 if problem.status == 410 else backoff.pause()
                # Whoever is told again and again that it is gone does not ask again and again without a pause.
                self._sleep(max(pause, LEAST_PAUSE))
        finally:
            self._client.close()
            self._leave()

    def _register(self, partitions: List[str], slots: int) -> None:
        answer = self._client.register(
            self._name, partitions, slots, host=socket.gethostname(), pid=os.getpid(), version=f"python {VERSION}"
        )
        self._session = answer["session"]
        self._pause = answer["valid_ms"] / 1000 * PART

    def _beat(self) -> None:
        assert self._session is not None
        tasks = self._keeper.held()[:MAX_HELD]
        said = self._worker.state
        answer = self._client.beat(
            self._name, self._session, said, [_held(task) for task in tasks], memory_bytes=_memory(), timeout=self._pause
        )
        self._pause = answer["valid_ms"] / 1000 * PART
        cancelled = set(answer["cancel"])
        for task, lease in zip(tasks, answer["held"]):
            if lease["outcome"] == "lost":
                self._keeper.lose(task)
            elif task.id in cancelled:
                self._keeper.cancel(task)
        self._worker.obey(answer["order"])
        if self._worker.state != said:
            # That it was heard is said at once.
            self.hurry()

    def _goes_on(self, problem: Problem) -> bool:
        """Whether there is any use in asking again."""
        if self._session is not None:
            if problem.status == 410:
                LOG.warning("the service has missed this worker, which registers anew")
                self._session = None
            else:
                LOG.warning("could not beat: %s", problem)
            return True
        # A name that is taken is free once the other is silent, which can be this one whose answer was lost.
        if problem.retry != "never" or problem.kind == "unknown":
            LOG.warning("could not register: %s", problem)
            return True
        level = logging.INFO if problem.status == 501 else logging.WARNING
        LOG.log(level, "this worker is not registered, and works without orders: %s", problem)
        return False

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._changed:
            while not (self._ended or self._due) and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            # What changes from here on is for the beat after the next.
            self._due = False

    def _leave(self) -> None:
        if self._session is None:
            return
        try:
            with self._connect() as client:
                client.leave(self._name, self._session, timeout=LEAVE)
        except Problem as problem:
            LOG.warning("could not say that this worker has ended; it will be missed: %s", problem)


def _held(task: Task) -> Json:
    held: Json = {"delivery": task.delivery}
    if task.progress is not None:
        held["progress"] = task.progress
    return held


def _memory() -> Optional[int]:
    """Resident memory of this process in bytes, where the system tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
