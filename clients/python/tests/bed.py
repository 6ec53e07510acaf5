"""What the tests against a service share."""

import functools
import logging
import os
import threading
import time
import unittest
import uuid
from typing import Any, Callable, List

from anyqueue import Client, Problem, Worker

ADDRESS = os.environ.get("ANYQUEUE_TEST_ADDRESS")
# How long a test waits for an event, in seconds: long, because a machine can be busy.
PATIENCE = 30.0
# The tests cause the failures that the worker warns about.
logging.getLogger("anyqueue").setLevel(logging.CRITICAL)


def where_supported(test: Callable[[Any], None]) -> Callable[[Any], None]:
    """Skips a test if the backend says that it does not support its subject."""

    @functools.wraps(test)
    def run(self: Any) -> None:
        try:
            test(self)
        except Problem as problem:
            if problem.kind != "unsupported":
                raise
            self.skipTest(str(problem))

    return run


class ServiceTest(unittest.TestCase):
    """A test with a queue of its own at a running service, and with workers that end with the test."""

    def setUp(self) -> None:
        if ADDRESS is None:
            self.fail("set ANYQUEUE_TEST_ADDRESS to the host:port of a service")
        self.address: str = ADDRESS
        self.client = Client(f"http://{ADDRESS}", timeout=PATIENCE)
        self.addCleanup(self.client.close)
        self.queue = f"python-{uuid.uuid4()}"

    def push(self, **message: Any) -> str:
        answer = self.client.push(self.queue, message)[0]
        self.assertEqual(answer["outcome"], "stored")
        return str(answer["id"])

    def worker(self, url: str = "", **options: Any) -> Worker:
        return Worker(url or f"http://{self.address}", **{"lease": 60.0, **options})

    def start(self, worker: Worker) -> "Running":
        running = Running(worker)
        self.addCleanup(running.end)
        return running

    def dead(self) -> List[Any]:
        """Returns the dead letters, once there are any: a broker may show them a moment later."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if dead := self.client.dead_letters(self.queue)["dead"]:
                return list(dead)
            time.sleep(0.05)
        return []

    def happens(self, event: threading.Event) -> None:
        self.assertTrue(event.wait(PATIENCE), "it did not happen in time")


class Running:
    """A worker in a thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.finished: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.finished = self.worker.run()
        except Problem as problem:
            self.finished = problem

    def end(self) -> Any:
        """Stops the worker, and returns what its `run` returned."""
        self.worker.stop()
        return self.wait()

    def wait(self) -> Any:
        self._thread.join(2 * PATIENCE)
        return self.finished
