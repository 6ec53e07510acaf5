"""The orders that a worker gets from the service that it registers with."""

import http.server
import json
import threading
import time
from typing import Any, Callable, List
from urllib.parse import quote

from anyqueue import Cancel, Client, Problem, Worker, __version__

from .bed import PATIENCE, ServiceTest
from .relay import Relay
from .test_worker import Blocked


class OrderTest(ServiceTest):
    def begin(self, **options: Any) -> Blocked:
        blocked = Blocked(self.worker(**options), self.queue)
        self.running = self.start(blocked.worker)
        self.addCleanup(blocked.release.set)
        return blocked

    def ask(self, method: str, worker: Worker, what: str = "", body: Any = None) -> Any:
        return self.client._call(method, f"/v1/workers/{quote(worker.name, '')}{what}", body)

    def shown(self, worker: Worker) -> Any:
        """Returns what the service shows of the worker; `None` if it knows no such worker."""
        try:
            return self.ask("GET", worker)
        except Problem as problem:
            self.assertEqual(problem.status, 404)
            return None

    def until(self, worker: Worker, is_so: Callable[[Any], Any]) -> Any:
        """Waits until the service shows something about a worker."""
        deadline = time.monotonic() + PATIENCE
        while not is_so(shown := self.shown(worker)):
            self.assertLess(time.monotonic(), deadline, f"still {shown}")
            time.sleep(0.05)
        return shown

    def test_a_worker_is_shown_with_what_it_runs_and_leaves_when_it_ends(self) -> None:
        id = self.push(payload="x")
        blocked = self.begin(concurrency=3)
        task = blocked.next()
        task.progress = "\N{SNOWMAN}" * 1000
        shown = self.until(blocked.worker, lambda shown: shown and shown["held"] and shown["held"][0].get("progress"))
        self.assertEqual((shown["slots"], shown["partitions"], shown["state"]), (3, [self.queue], "working"))
        self.assertEqual((shown["version"], shown["held"][0]["id"]), (f"python {__version__}", id))
        self.assertEqual(shown["held"][0]["progress"], "\N{SNOWMAN}" * 341, "cut between two letters")
        blocked.release.set()
        self.assertIs(self.running.end(), True)
        self.assertIsNone(self.shown(blocked.worker))
        self.assertIs(blocked.worker.recycled, False)

    def test_a_quiet_worker_takes_on_nothing_until_it_is_to_go_on(self) -> None:
        blocked = self.begin(wait=30.0)
        self.until(blocked.worker, bool)
        self.ask("POST", blocked.worker, "/quiet")
        self.until(blocked.worker, lambda shown: shown and shown["state"] == "quiet")
        id = self.push(payload="x")
        pulled = self.client.pull([self.queue], wait=PATIENCE)["deliveries"]
        self.assertEqual([one["id"] for one in pulled], [id], "others get it")
        self.client.settle({"delivery": pulled[0]["delivery"], "status": "waiting"})
        self.ask("POST", blocked.worker, "/resume")
        self.assertEqual(blocked.next().id, id)
        self.until(blocked.worker, lambda shown: shown and shown["state"] == "working")

    def test_a_quiet_worker_keeps_what_it_has_and_can_be_stopped(self) -> None:
        self.push(payload="x")
        blocked = self.begin()
        task = blocked.next()
        self.until(blocked.worker, bool)
        self.ask("POST", blocked.worker, "/quiet")
        shown = self.until(blocked.worker, lambda shown: shown and shown["state"] == "quiet")
        self.assertEqual([one["id"] for one in shown["held"]], [task.id])
        blocked.release.set()
        self.assertIs(self.running.end(), True)
        self.assertEqual(self.client.settle({"delivery": task.delivery, "status": "processed"})[0]["outcome"], "lost")

    def test_what_was_sent_to_a_worker_that_became_quiet_goes_back(self) -> None:
        relay = Relay(self.address)
        self.addCleanup(relay.close)
        id = self.push(payload="x")
        relay.hold_answer_with(id)
        blocked = Blocked(self.worker(relay.url, lease=600.0, wait=30.0), self.queue)
        self.start(blocked.worker)
        self.happens(relay.held)
        self.until(blocked.worker, bool)
        self.ask("POST", blocked.worker, "/quiet")
        pulled = self.client.pull([self.queue], wait=PATIENCE)["deliveries"]
        self.assertEqual([one["id"] for one in pulled], [id])

    def test_a_worker_that_is_ordered_to_stop_finishes_what_it_has(self) -> None:
        self.stops_at("/stop", recycled=False)

    def test_a_worker_that_is_recycled_says_so(self) -> None:
        self.stops_at("/recycle", recycled=True)

    def stops_at(self, order: str, recycled: bool) -> None:
        self.push(payload="x")
        blocked = self.begin()
        task = blocked.next()
        self.until(blocked.worker, bool)
        self.ask("POST", blocked.worker, order)
        self.until(blocked.worker, lambda shown: shown and shown["state"] == "draining")
        # A supervisor may say the same: this is not the second stop, which would not wait.
        blocked.worker.stop()
        self.assertFalse(task.wait(0.5))
        self.assertIsNone(self.running.finished)
        blocked.release.set()
        self.assertIs(self.running.wait(), True)
        self.assertIs(blocked.worker.recycled, recycled)
        self.assertIsNone(self.shown(blocked.worker))
        self.assertEqual(self.client.settle({"delivery": task.delivery, "status": "processed"})[0]["outcome"], "lost")

    def test_a_task_is_cancelled_on_its_worker_and_no_other(self) -> None:
        ids = {self.push(payload="a"), self.push(payload="b")}
        blocked = self.begin(concurrency=2, lease=600.0)
        tasks = [blocked.next(), blocked.next()]
        self.assertEqual({task.id for task in tasks}, ids)
        self.until(blocked.worker, lambda shown: shown and len(shown["held"]) == 2)
        self.ask("PUT", blocked.worker, "/cancel", {"id": tasks[0].id})
        self.assertTrue(tasks[0].wait(PATIENCE))
        self.assertEqual([(task.cancel_requested, task.lost) for task in tasks], [(True, False), (False, False)])
        blocked.raises = Cancel()

    def test_a_task_that_the_service_ends_as_it_takes_too_long_is_lost_by_the_next_beat(self) -> None:
        self.push(payload="x", max_duration_ms=100, max_retries=0)
        # The first extension of its lease comes only after minutes: no other call can tell.
        blocked = self.begin(lease=600.0)
        task = blocked.next()
        deadline = time.monotonic() + PATIENCE
        while not task.lost:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertEqual((task.cancel_requested, task.timed_out), (False, True))

    def test_a_worker_that_was_forgotten_registers_anew(self) -> None:
        blocked = self.begin()
        first = self.until(blocked.worker, bool)
        self.ask("DELETE", blocked.worker)
        again = self.until(blocked.worker, bool)
        self.assertEqual((again["slots"], again["pid"]), (first["slots"], first["pid"]))

    def test_a_worker_registers_once_the_name_is_free(self) -> None:
        name = f"{self.queue}-w"
        session = self.client.register(name, [self.queue], valid=60.0)["session"]
        blocked = self.begin(name=name)
        id = self.push(payload="x")
        self.assertEqual(blocked.next().id, id, "it works without")
        self.client.leave(name, session)
        self.until(blocked.worker, lambda shown: shown and shown["version"].startswith("python"))


class NoRegistryTest(ServiceTest):
    def test_a_worker_works_where_nobody_is_registered(self) -> None:
        service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), WithoutRegistry)
        service.daemon_threads = True
        self.addCleanup(service.server_close)
        self.addCleanup(service.shutdown)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        WithoutRegistry.backend = self.address
        WithoutRegistry.asked.clear()
        ran = threading.Event()
        worker = self.worker("http://127.0.0.1:%d" % service.server_port, wait=1.0)
        worker.handler(self.queue)(lambda task: ran.set())
        running = self.start(worker)
        self.push(payload="x")
        self.happens(ran)
        self.assertIs(running.end(), True)
        self.assertEqual(WithoutRegistry.asked, ["/v1/workers"], "it asks once")


class WithoutRegistry(http.server.BaseHTTPRequestHandler):
    """A service like the one behind it, but without a control store."""

    backend = ""
    asked: List[str] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.startswith("/v1/workers"):
            self.asked.append(self.path)
            self.answer(501, {"status": 501, "kind": "unsupported", "retry": "never", "detail": "no control store"})
            return
        with Client(f"http://{self.backend}", timeout=PATIENCE) as client:
            self.answer(200, client._call("POST", self.path, json.loads(body), wait=1.0))

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass
