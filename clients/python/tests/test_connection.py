"""Deadlines, and connections that the other end has closed."""

import socket
import threading
import time
import unittest

from anyqueue import Client, Problem

from .bed import PATIENCE, ServiceTest
from .relay import Relay


class StaleTest(ServiceTest):
    def test_a_push_survives_that_its_kept_connection_was_closed(self) -> None:
        relay = Relay(self.address)
        self.addCleanup(relay.close)
        with Client(relay.url) as client:
            for number in range(3):
                # A push is not repeated if its answer got lost: so it must not have been sent.
                self.assertEqual(client.push(self.queue, {"payload": str(number)})[0]["outcome"], "stored")
                relay.cut()
        payloads = []
        for _ in range(3):
            pulled = self.client.pull([self.queue], wait=PATIENCE)["deliveries"]
            payloads += [one["payload"] for one in pulled]
        self.assertEqual(sorted(payloads), ["0", "1", "2"])


class DeadlineTest(unittest.TestCase):
    def test_an_answer_that_comes_in_drops_does_not_outlive_the_deadline(self) -> None:
        ended = threading.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        self.addCleanup(ended.set)

        def drip() -> None:
            near, _ = listener.accept()
            with near:
                near.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
                try:
                    # Each step is far shorter than the timeout; all of them together are not.
                    while not ended.wait(0.05):
                        near.sendall(b" ")
                except OSError:
                    pass  # The client has closed the connection.

        threading.Thread(target=drip, daemon=True).start()
        began = time.monotonic()
        with self.assertRaises(Problem) as caught:
            Client("http://127.0.0.1:%d" % listener.getsockname()[1], timeout=1.0).push("q", {"payload": "x"})
        self.assertEqual((caught.exception.kind, caught.exception.retry), ("unreachable", "may_duplicate"))
        self.assertLess(time.monotonic() - began, PATIENCE)

    def test_an_answer_that_breaks_off_is_a_lost_one(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def breaks_off() -> None:
            near, _ = listener.accept()
            with near:
                near.recv(65536)
                near.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n[{"outcome"')

        threading.Thread(target=breaks_off, daemon=True).start()
        with self.assertRaises(Problem) as caught:
            Client("http://127.0.0.1:%d" % listener.getsockname()[1], timeout=PATIENCE).push("q", {"payload": "x"})
        self.assertEqual((caught.exception.kind, caught.exception.retry), ("unreachable", "may_duplicate"))
