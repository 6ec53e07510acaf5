"""Registers a worker with the service, and receives its orders."""

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
# A heartbeat is sent when this part of the validity of the last one is over, and the call may take as long.
PART = 1 / 3
# How long the report that the worker has ended may take, in seconds.
LEAVE = 2.0
# The most tasks that a heartbeat names, and the shortest pause between two heartbeats, in seconds.
MAX_HELD = 512
LEAST_PAUSE = 0.2


class Obeys(Protocol):
    """A worker that takes orders."""

    @property
    def state(self) -> str:
        """The state of the worker: `working`, `quiet` or `draining`."""

    def obey(self, order: str) -> None:
        """Obeys an order: `go_on`, `quiet`, `stop` or `recycle`. The same order may come several times."""


class Registrar:
    """Registers the worker and sends its heartbeats, in one thread with a connection of its own. If the service keeps no registry, the
    worker works all the same."""

    def __init__(self, connect: Callable[[], Client], name: str, keeper: Keeper, worker: Obeys) -> None:
        self._connect, self._client = connect, connect()
        self._name, self._keeper, self._worker = name, keeper, worker
        self._session: Optional[str] = None
        self._pause = 0.0
        self._changed = threading.Condition()
        self._due = False
        self._ended = False

    def hurry(self) -> None:
        """Sends the next heartbeat at once, because the worker has changed."""
        with self._changed:
            self._due = True
            self._changed.notify()

    def end(self) -> None:
        """Makes `run` report that the worker has ended, and return."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._client.interrupt()

    def run(self, partitions: List[str], slots: int) -> None:
        """Sends heartbeats until `end` is called, or the service says that it registers nobody."""
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
                # Even if the service says again and again that the worker is gone, there is a pause before it asks again.
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
            # The service is told at once that the worker obeys.
            self.hurry()

    def _goes_on(self, problem: Problem) -> bool:
        """Whether asking again can help."""
        if self._session is not None:
            if problem.status == 410:
                LOG.warning("the service has missed this worker, which registers anew")
                self._session = None
            else:
                LOG.warning("could not beat: %s", problem)
            return True
        # A name that is taken becomes free once its worker is silent; that may be this worker, if its answer got lost.
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
            # Changes from here on are for the heartbeat after the next.
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
    """Returns the resident memory of this process in bytes, if the system tells."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
