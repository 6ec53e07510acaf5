"""The worker against a running service."""

import threading
import time
from typing import Any, Dict, List

from anyqueue import Cancel, Poison, Postpone, Problem, Task, Worker

from .bed import PATIENCE, ServiceTest, where_supported


class OutcomeTest(ServiceTest):
    @where_supported
    def test_a_result_is_kept_and_the_kind_selects_the_handler(self) -> None:
        def doubles(task: Task) -> Any:
            task.progress = "nearly done"
            return {"double": 2 * task.json()["n"]}

        worker = self.worker()
        worker.handler(self.queue)(lambda task: {"other": task.kind})
        worker.handler(self.queue, "double")(doubles)
        ids = [self.push(json={"n": 21}, kind="double"), self.push(payload="x", kind="new")]
        self.start(worker)
        tasks = [self.client.result(self.queue, id, wait=PATIENCE) for id in ids]
        results = [(task["state"], task.get("result"), task["worker"]) for task in tasks]
        self.assertEqual(results, [("succeeded", {"double": 42}, worker.name), ("succeeded", {"other": "new"}, worker.name)])
        self.assertEqual([task["progress"] for task in tasks], ["nearly done", None])

    @where_supported
    def test_an_exception_fails_the_task_with_its_text(self) -> None:
        def fails(task: Task) -> None:
            raise ValueError("no such address")

        self.assertIn("ValueError: no such address", self.dies_of(fails, max_retries=0))

    @where_supported
    def test_a_poisonous_task_is_not_tried_again(self) -> None:
        def refuses(task: Task) -> None:
            raise Poison("cannot be read")

        self.assertEqual(self.dies_of(refuses, max_retries=5), "cannot be read")

    @where_supported
    def test_a_result_that_is_no_json_fails_the_task(self) -> None:
        self.assertIn("no JSON", self.dies_of(lambda task: {1, 2}, max_retries=0))

    @where_supported
    def test_a_task_without_a_handler_fails(self) -> None:
        self.assertIn("no handler for the kind 'new'", self.dies_of(None, kind="new", max_retries=0))

    def dies_of(self, handler: Any, **message: Any) -> str:
        worker = self.worker()
        worker.handler(self.queue, "known")(lambda task: None)
        if handler is not None:
            worker.handler(self.queue)(handler)
        self.client.dead_letters(self.queue)  # If they cannot be listed, this fails at once.
        id = self.push(payload="x", **message)
        self.start(worker)
        dead = self.dead()
        self.assertEqual([one["id"] for one in dead], [id])
        return str(dead[0]["reason"])

    def test_a_postponed_task_comes_again(self) -> None:
        calls: List[str] = []
        again = threading.Event()

        def later(task: Task) -> None:
            calls.append(task.id)
            if len(calls) == 1:
                raise Postpone(0.0)
            again.set()

        worker = self.worker()
        worker.handler(self.queue)(later)
        id = self.push(payload="x", max_retries=0)
        running = self.start(worker)
        self.happens(again)
        self.assertTrue(running.end())
        self.assertEqual(calls, [id, id])


class HoldTest(ServiceTest):
    """Which tasks are held, and for how long."""

    def blocked(self, **options: Any) -> "Blocked":
        blocked = Blocked(self.worker(**options), self.queue)
        # Cleanups run last to first: the handlers are released before the worker is stopped.
        self.running = self.start(blocked.worker)
        self.addCleanup(blocked.release.set)
        return blocked

    def test_no_more_is_pulled_than_threads_are_free(self) -> None:
        ids = {self.push(payload=str(number)) for number in range(5)}
        blocked = self.blocked(concurrency=2)
        begun = {blocked.next().id, blocked.next().id}
        left: Dict[str, str] = {}
        while len(left) < 3:
            pulled = self.client.pull([self.queue], max=5, wait=PATIENCE)["deliveries"]
            self.assertTrue(pulled, "what no thread is free for can be pulled by others")
            left.update({one["id"]: one["delivery"] for one in pulled})
        self.assertEqual(begun | set(left), ids)
        for delivery in left.values():
            self.client.settle({"delivery": delivery, "status": "processed"})

    def test_what_takes_longer_than_its_lease_is_extended(self) -> None:
        self.push(payload="long")
        blocked = self.blocked(lease=6.0)
        task = blocked.next()
        # Waits for longer than the lease for a message that must not come.
        self.assertEqual(self.client.pull([self.queue], wait=9.0)["deliveries"], [])
        self.assertFalse(task.lost)
        blocked.release.set()
        self.assertTrue(self.running.end())
        self.assertEqual(self.client.settle({"delivery": task.delivery, "status": "processed"})[0]["outcome"], "lost")

    @where_supported
    def test_a_running_task_hears_that_it_is_to_be_cancelled(self) -> None:
        id = self.push(payload="x")
        blocked = self.blocked(lease=6.0)
        task = blocked.next()
        self.client.cancel(self.queue, id)
        self.assertTrue(task.wait(PATIENCE))
        self.assertEqual((task.cancel_requested, task.lost), (True, False))
        blocked.raises = Cancel()
        blocked.release.set()
        self.assertEqual(self.client.result(self.queue, id, wait=PATIENCE)["state"], "cancelled")

    @where_supported
    def test_a_task_that_has_run_for_as_long_as_it_may_is_asked_to_stop_and_times_out(self) -> None:
        self.client.dead_letters(self.queue)
        id = self.push(payload="x", max_duration_ms=200, max_retries=0)
        blocked = self.blocked(lease=60.0)
        task = blocked.next()
        self.assertTrue(task.wait(PATIENCE))
        self.assertEqual((task.timed_out, task.cancel_requested, task.lost), (True, False, False))
        blocked.raises = RuntimeError("given up")
        blocked.release.set()
        dead = self.dead()
        self.assertEqual([one["id"] for one in dead], [id])
        self.assertRegex(str(dead[0]["reason"]), "timed_out.*given up")

    @where_supported
    def test_a_task_whose_handler_does_not_stop_in_time_is_ended_by_the_service(self) -> None:
        self.client.dead_letters(self.queue)
        id = self.push(payload="x", max_duration_ms=100, max_retries=0)
        blocked = self.blocked(lease=6.0)
        task = blocked.next()
        self.assertEqual([one["id"] for one in self.dead()], [id])
        # It was asked to stop before, so there is nothing to wait for but the next extension.
        until = time.monotonic() + PATIENCE
        while not task.lost and time.monotonic() < until:
            time.sleep(0.05)
        self.assertTrue(task.timed_out and task.lost)
        blocked.release.set()

    def test_a_task_that_was_settled_behind_its_back_is_lost(self) -> None:
        self.push(payload="x")
        blocked = self.blocked(lease=6.0)
        task = blocked.next()
        self.assertEqual(self.client.settle({"delivery": task.delivery, "status": "processed"})[0]["outcome"], "settled")
        self.assertTrue(task.wait(PATIENCE))
        self.assertEqual((task.cancel_requested, task.lost), (False, True))


class MistakeTest(ServiceTest):
    def test_what_the_service_refuses_ends_the_run(self) -> None:
        worker = self.worker()
        worker.handler("no name \n of a queue")(lambda task: None)
        finished = self.start(worker).wait()
        self.assertIsInstance(finished, Problem)
        self.assertEqual(finished.kind, "invalid_input")

    def test_bad_options_are_refused(self) -> None:
        bad: List[Dict[str, Any]] = [{"concurrency": 0}, {"concurrency": 257}, {"wait": 31}, {"lease": 0}, {"drain": -1}, {"timeout": 0}]
        for options in bad:
            with self.assertRaises(ValueError, msg=str(options)):
                self.worker(**options)
        with self.assertRaises(RuntimeError):
            self.worker().run()
        worker = self.worker()
        worker.handler("a")(lambda task: None)
        with self.assertRaises(ValueError):
            worker.handler("a")(lambda task: None)


class Blocked:
    """A worker whose handlers report that they have begun, and then wait."""

    def __init__(self, worker: Worker, queue: str) -> None:
        self.worker = worker
        self.release = threading.Event()
        self.raises: Any = None
        self._begun: List[Task] = []
        self._changed = threading.Condition()
        worker.handler(queue)(self._handle)

    def _handle(self, task: Task) -> None:
        with self._changed:
            self._begun.append(task)
            self._changed.notify()
        self.release.wait(2 * PATIENCE)
        if self.raises is not None:
            raise self.raises

    def next(self) -> Task:
        """Returns the next task that has begun."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._begun, PATIENCE):
                raise AssertionError("no task has begun in time")
            return self._begun.pop(0)
