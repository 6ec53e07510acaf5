"""Holds the tasks that handlers work on."""

import logging
import math
import threading
import time
from typing import Callable, Dict, List, Optional

from .backoff import Backoff
from .client import Client, Json
from .problem import Problem
from .task import Task

LOG = logging.getLogger("anyqueue")
# A lease is extended when this part of it is over, and the call that extends it may take as long.
PART = 1 / 3


class Keeper:
    """Extends leases, in one thread with a connection of its own."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._changed = threading.Condition()
        self._due: Dict[Task, float] = {}
        self._ended = False

    def hold(self, task: Task) -> None:
        """Extends the lease of the task from now on."""
        with self._changed:
            # If the lease was granted for less, this is a part of what is left.
            self._due[task] = time.monotonic() + (task._until - time.monotonic()) * PART
            self._changed.notify()

    def let_go(self, task: Task) -> None:
        """No longer extends the lease of the task."""
        with self._changed:
            self._due.pop(task, None)

    def held(self) -> List[Task]:
        """Returns the tasks whose leases are extended, in the order in which they were pulled."""
        with self._changed:
            return list(self._due)

    def lose(self, task: Task) -> None:
        """Handles the report that the task is no longer held: its handler is told, unless the task was let go meanwhile."""
        with self._changed:
            if task in self._due:
                self._lose(task)

    def cancel(self, task: Task) -> None:
        """Handles the report that the task is to be cancelled."""
        with self._changed:
            if task in self._due:
                task._ask_to_cancel()

    def end(self) -> None:
        """Ends `run`."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def run(self) -> None:
        """Extends the leases that are due, until `end` is called."""
        backoff = Backoff()
        with self._connect() as client:
            while True:
                due = self._next()
                if due is None:
                    return
                if self._extend(client, due):
                    backoff.reset()
                else:
                    self._retry(due, backoff.pause())

    def _next(self) -> Optional[List[Task]]:
        """Waits until leases are due, and returns their tasks. A task whose lease has ended meanwhile is lost."""
        with self._changed:
            while not self._ended:
                now = time.monotonic()
                for task in [task for task in self._due if task._until <= now]:
                    self._lose(task)
                for task in [task for task in self._due if self._deadline(task) <= now]:
                    task._time_out()
                due = [task for task, at in self._due.items() if at <= now]
                if due:
                    return due
                nearest = min((min(at, self._deadline(task)) for task, at in self._due.items()), default=math.inf)
                self._changed.wait(None if nearest == math.inf else nearest - now)
            return None

    @staticmethod
    def _deadline(task: Task) -> float:
        """When the task is to be asked to stop; never, if it has been already."""
        return math.inf if task._deadline is None or task._timed_out else task._deadline

    def _extend(self, client: Client, due: List[Task]) -> bool:
        """Extends leases, and returns whether none of the extensions failed."""
        # One length for each call keeps this simple; the leases of one worker rarely differ.
        lease = due[0]._lease
        same = [task for task in due if task._lease == lease]
        began = time.monotonic()
        try:
            answers = client.extend([task.delivery for task in same], lease, timeout=lease * PART)
        except Problem as problem:
            LOG.warning("leases could not be extended: %s", problem)
            return False
        results = [self._take(task, answer, began) for task, answer in zip(same, answers)]
        return all(results)

    def _take(self, task: Task, answer: Json, began: float) -> bool:
        with self._changed:
            if task not in self._due:
                return True
            if answer["outcome"] == "lost":
                self._lose(task)
            elif answer["outcome"] == "error":
                LOG.warning("the lease of %s could not be extended: %s", task.id, answer["problem"].get("detail"))
                return False
            else:
                task._until = began + task._lease
                self._due[task] = began + task._lease * PART
                if answer["outcome"] == "cancel_requested":
                    task._ask_to_cancel()
        return True

    def _retry(self, due: List[Task], pause: float) -> None:
        with self._changed:
            now = time.monotonic()
            for task in due:
                if task in self._due and self._due[task] <= now:
                    # No later than the end of its lease, which has to be noticed.
                    self._due[task] = min(now + pause, max(task._until, now))

    def _lose(self, task: Task) -> None:
        LOG.warning("%s is lost: somebody else may have it now", task.id)
        self._due.pop(task, None)
        task._lose()
