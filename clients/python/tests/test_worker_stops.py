"""How the worker stops, and what it does while the service is away."""

import os
import signal
import subprocess
import sys
import threading
from typing import Any, List

from anyqueue import Worker
from anyqueue.backoff import MOST, Backoff

from .bed import PATIENCE, ServiceTest
from .relay import Relay
from .test_worker import Blocked

CHILD = """
import sys
from anyqueue import Worker

worker = Worker(sys.argv[1], lease=60.0)

@worker.handler(sys.argv[2])
def handle(task):
    print("begun", flush=True)
    sys.stdin.readline()
    print("handled", flush=True)

print("finished", worker.run(handle_signals=True), flush=True)
"""


class StopTest(ServiceTest):
    def test_what_runs_may_finish_and_nothing_new_is_begun(self) -> None:
        blocked = Blocked(self.worker(concurrency=1), self.queue)
        self.push(payload="runs")
        running = self.start(blocked.worker)
        self.addCleanup(blocked.release.set)
        task = blocked.next()
        blocked.worker.stop()
        self.happens(blocked.worker._stopping)
        waits = self.push(payload="waits")
        pulled = self.client.pull([self.queue], wait=PATIENCE)["deliveries"]
        self.assertEqual([one["id"] for one in pulled], [waits])
        blocked.release.set()
        self.assertIs(running.wait(), True)
        self.assertEqual(self.client.settle({"delivery": task.delivery, "status": "processed"})[0]["outcome"], "lost")

    def test_what_does_not_finish_by_the_deadline_is_left_to_its_lease(self) -> None:
        blocked = Blocked(self.worker(drain=0.0), self.queue)
        self.push(payload="runs")
        running = self.start(blocked.worker)
        self.addCleanup(blocked.release.set)
        task = blocked.next()
        self.assertIs(running.end(), False)
        answer = self.client.settle({"delivery": task.delivery, "status": "processed"})[0]
        self.assertEqual(answer["outcome"], "settled", "it was held until then")

    def test_what_was_pulled_and_has_not_begun_goes_back(self) -> None:
        ran: List[str] = []
        worker = StopsOnceItPulled(f"http://{self.address}", lease=600.0)
        worker.handler(self.queue)(lambda task: ran.append(task.id))
        id = self.push(payload="x")
        self.assertIs(self.start(worker).wait(), True)
        pulled = self.client.pull([self.queue], wait=PATIENCE)["deliveries"]
        self.assertEqual(([one["id"] for one in pulled], ran), ([id], []))

    def test_what_was_sent_and_never_arrived_goes_back_at_the_stop(self) -> None:
        relay = self.relay()
        id = self.push(payload="x")
        relay.hold_answer_with(id)
        worker = self.worker(relay.url, lease=600.0)
        worker.handler(self.queue)(lambda task: None)
        running = self.start(worker)
        self.happens(relay.held)
        self.assertIs(running.end(), True)
        pulled = self.client.pull([self.queue], wait=PATIENCE)["deliveries"]
        self.assertEqual([one["id"] for one in pulled], [id])

    def test_signals_stop_it(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number), self.child() as child:
                self.addCleanup(child.kill)
                self.push(payload="x")
                self.assertEqual(child.stdout.readline(), "begun\n")
                child.send_signal(number)
                output, _ = child.communicate("go\n", timeout=2 * PATIENCE)
                self.assertEqual((output, child.returncode), ("handled\nfinished True\n", 0))

    def child(self) -> Any:
        command = [sys.executable, "-c", CHILD, f"http://{self.address}", self.queue]
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True)

    def relay(self) -> Relay:
        relay = Relay(self.address)
        self.addCleanup(relay.close)
        return relay


class AwayTest(ServiceTest):
    def test_it_goes_on_once_the_service_is_there(self) -> None:
        relay = Relay(self.address)
        self.addCleanup(relay.close)
        relay.go_down()
        ran = threading.Event()
        worker = self.worker(relay.url)
        worker.handler(self.queue)(lambda task: ran.set())
        self.push(payload="x")
        self.start(worker)
        for _ in range(4):
            self.assertTrue(relay.refused.acquire(timeout=PATIENCE))
        relay.come_up()
        self.happens(ran)

    def test_a_settlement_is_repeated_until_it_is_heard(self) -> None:
        relay = Relay(self.address)
        self.addCleanup(relay.close)
        # The only thread is busy: only the settlement is refused.
        blocked = Blocked(self.worker(relay.url, concurrency=1, lease=600.0), self.queue)
        self.push(payload="x")
        running = self.start(blocked.worker)
        self.addCleanup(blocked.release.set)
        task = blocked.next()
        relay.go_down()
        blocked.release.set()
        for _ in range(4):
            self.assertTrue(relay.refused.acquire(timeout=PATIENCE))
        relay.come_up()
        self.assertIs(running.end(), True)
        self.assertEqual(self.client.settle({"delivery": task.delivery, "status": "processed"})[0]["outcome"], "lost")

    def test_pauses_are_bounded_and_differ(self) -> None:
        backoff = Backoff()
        pauses = [backoff.pause() for _ in range(2000)]
        self.assertLessEqual(max(pauses), MOST)
        self.assertGreaterEqual(min(pauses[20:]), MOST / 2)
        self.assertGreater(len(set(pauses)), 1000)
        backoff.reset()
        self.assertLess(backoff.pause(), 1.0)


class StopsOnceItPulled(Worker):
    """A worker whose pulled messages arrive while it stops."""

    def _accept(self, puller: Any, messages: Any) -> None:
        if messages:
            self.stop()
            self._stopping.wait(PATIENCE)
        super()._accept(puller, messages)
