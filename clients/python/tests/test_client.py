"""The client against a running service."""

import unittest

from anyqueue import Client, Problem

from .bed import ServiceTest, where_supported

class ClientTest(ServiceTest):
    @where_supported
    def test_a_task_is_pushed_pulled_extended_settled_and_its_result_found(self) -> None:
        pushed = self.client.push(self.queue, {"payload": "hello", "kind": "send"})
        self.assertEqual(pushed[0]["outcome"], "stored")
        pulled = self.client.pull([self.queue], wait=20, lease=60, worker="w1")
        delivery = pulled["deliveries"][0]
        self.assertEqual((delivery["payload"], delivery["kind"]), ("hello", "send"))
        self.assertEqual(self.client.extend([delivery["delivery"]], 60)[0]["outcome"], "extended")
        end = {"delivery": delivery["delivery"], "status": "processed", "result": {"n": 1}}
        self.assertEqual(self.client.settle(end)[0]["outcome"], "settled")
        self.assertEqual(self.client.settle(end)[0]["outcome"], "lost")
        task = self.client.result(self.queue, delivery["id"], wait=20)
        self.assertEqual((task["state"], task["result"]), ("succeeded", {"n": 1}))

    def test_a_pull_whose_answer_was_not_received_comes_again(self) -> None:
        self.client.push(self.queue, {"payload": "once"})
        first = self.client.pull([self.queue], wait=20, lease=600, worker=self.queue)
        second = self.client.pull([self.queue], wait=20, lease=600, worker=self.queue)
        self.assertEqual(first["deliveries"][0]["id"], second["deliveries"][0]["id"])
        third = self.client.pull([self.queue], worker=self.queue, received=second["pull"])
        self.assertEqual(third["deliveries"], [])

    @where_supported
    def test_what_waits_can_be_cancelled(self) -> None:
        id = self.client.push(self.queue, {"payload": "no"})[0]["id"]
        self.assertEqual(self.client.cancel(self.queue, id)["outcome"], "removed")
        self.assertEqual(self.client.pull([self.queue])["deliveries"], [])

    @where_supported
    def test_a_poisonous_task_is_a_dead_letter(self) -> None:
        self.client.push(self.queue, {"payload": "bad"})
        delivery = self.client.pull([self.queue], wait=20)["deliveries"][0]
        self.client.settle({"delivery": delivery["delivery"], "status": "poisonous", "error": "why"})
        self.assertEqual([(one["payload"], one["reason"]) for one in self.dead()], [("bad", "why")])

    def test_a_mistake_is_a_problem_that_says_what_to_do(self) -> None:
        with self.assertRaises(Problem) as caught:
            self.client.pull([self.queue], max=0)
        self.assertEqual((caught.exception.kind, caught.exception.retry), ("invalid_input", "never"))
        self.assertIn("ask for 1 to 1000", caught.exception.detail)


class UnreachableTest(unittest.TestCase):
    def test_a_service_that_is_away_is_a_problem(self) -> None:
        with self.assertRaises(Problem) as caught:
            Client("http://127.0.0.1:1", timeout=5).push("q", {"payload": "x"})
        self.assertEqual(caught.exception.kind, "unreachable")
