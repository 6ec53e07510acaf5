"""The calls of the service, over one kept connection."""

import json
import time
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type
from urllib.parse import quote, urlencode

from .connection import Connection
from .problem import Problem

Json = Dict[str, Any]


class Client:
    """A client of one service. It must not be shared between threads: give each thread its own."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: float = 30.0) -> None:
        """`timeout` limits a whole call, in seconds: its repetition included, but not the wait that it asks for. Only looking up the
        host's name is not limited by it: use an IP address where that matters."""
        self._connection = Connection(url)
        self._timeout = timeout
        self._headers = {"content-type": "application/json"}
        if token is not None:
            self._headers["authorization"] = f"Bearer {token}"

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; the next call opens it again."""
        self._connection.close()

    def interrupt(self) -> None:
        """Ends the call that is under way, and all later ones: they raise a `Problem`. For use from another thread."""
        self._connection.interrupt()

    def push(self, partition: str, *messages: Json) -> List[Json]:
        """Pushes up to 1000 messages, and returns an answer for each, in order."""
        answer: List[Json] = self._call("POST", f"/v1/partitions/{quote(partition, '')}/messages", list(messages))
        return answer

    def pull(
        self,
        partitions: Sequence[str],
        max: int = 1,
        wait: float = 0.0,
        lease: Optional[float] = None,
        worker: Optional[str] = None,
        received: Optional[str] = None,
    ) -> Json:
        """Pulls up to `max` messages, waiting up to `wait` seconds for the first. If you name a `worker`, pass the `pull` of the last
        answer as `received` with the next pull: messages that were sent to this name and not received go back, even while
        somebody works on them."""
        request: Json = {"partitions": list(partitions), "max": max, "wait_ms": int(wait * 1000)}
        if lease is not None:
            request["lease_ms"] = int(lease * 1000)
        if worker is not None:
            request["worker"] = worker
        if received is not None:
            request["received"] = received
        answer: Json = self._call("POST", "/v1/pull", request, wait=wait, repeatable=worker is not None)
        return answer

    def settle(self, *ends: Json, timeout: Optional[float] = None) -> List[Json]:
        """Settles deliveries, and returns an answer for each. If an answer got lost, repeating the call returns `lost`."""
        answer: List[Json] = self._call("POST", "/v1/settle", list(ends), repeatable=True, timeout=timeout)
        return answer

    def extend(self, deliveries: Sequence[str], lease: float, timeout: Optional[float] = None) -> List[Json]:
        """Holds deliveries for `lease` seconds from now, and returns an answer for each."""
        items = [{"delivery": delivery, "lease_ms": int(lease * 1000)} for delivery in deliveries]
        answer: List[Json] = self._call("POST", "/v1/extend", items, repeatable=True, timeout=timeout)
        return answer

    def register(
        self,
        name: str,
        partitions: Sequence[str],
        slots: int = 1,
        host: Optional[str] = None,
        pid: Optional[int] = None,
        version: Optional[str] = None,
        valid: Optional[float] = None,
    ) -> Json:
        """Registers a worker whose heartbeats are valid for `valid` seconds each. The answer has the `session` that they need."""
        request: Json = {"name": name, "partitions": list(partitions), "slots": slots}
        told = {"host": host, "pid": pid, "version": version, "valid_ms": None if valid is None else int(valid * 1000)}
        request.update({key: value for key, value in told.items() if value is not None})
        answer: Json = self._call("POST", "/v1/workers", request)
        return answer

    def beat(
        self,
        name: str,
        session: str,
        state: str = "working",
        held: Sequence[Json] = (),
        memory_bytes: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> Json:
        """Sends the heartbeat of a registered worker: its state and what it holds. The answer has its `order` and what to `cancel`."""
        request: Json = {"state": state, "held": list(held)}
        if memory_bytes is not None:
            request["memory_bytes"] = memory_bytes
        path = f"/v1/workers/{quote(name, '')}/beat"
        answer: Json = self._call("POST", path, request, repeatable=True, timeout=timeout, session=session)
        return answer

    def leave(self, name: str, session: str, timeout: Optional[float] = None) -> None:
        """Reports that a registered worker has ended."""
        self._call("DELETE", f"/v1/workers/{quote(name, '')}", timeout=timeout, session=session)

    def task(self, partition: str, id: str) -> Json:
        """Returns what is known of a task."""
        answer: Json = self._call("GET", self._task(partition, id), repeatable=True)
        return answer

    def result(self, partition: str, id: str, wait: float = 0.0) -> Json:
        """Returns the task once it has ended, or its current state after `wait` seconds."""
        path = self._task(partition, id, "/result", {"wait_ms": str(int(wait * 1000))})
        answer: Json = self._call("GET", path, wait=wait, repeatable=True)
        return answer

    def cancel(self, partition: str, id: str) -> Json:
        """Removes a waiting task, or asks the worker that runs it to stop."""
        answer: Json = self._call("POST", self._task(partition, id, "/cancel"))
        return answer

    def partition(self, partition: str) -> Json:
        """Returns the counts of a queue."""
        answer: Json = self._call("GET", f"/v1/partitions/{quote(partition, '')}", repeatable=True)
        return answer

    def dead_letters(self, partition: str) -> Json:
        """Returns a page of dead letters, with their payloads."""
        path = f"/v1/partitions/{quote(partition, '')}/dead?payloads=true"
        answer: Json = self._call("GET", path, repeatable=True)
        return answer

    @staticmethod
    def _task(partition: str, id: str, what: str = "", query: Optional[Dict[str, str]] = None) -> str:
        return f"/v1/tasks/{quote(id, '')}{what}?{urlencode({'partition': partition, **(query or {})})}"

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        wait: float = 0.0,
        repeatable: bool = False,
        timeout: Optional[float] = None,
        session: Optional[str] = None,
    ) -> Any:
        """Makes a call, and repeats it once if that is safe: the service says so, or the call is repeatable and its answer got lost."""
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = self._headers if session is None else {**self._headers, "worker-session": session}
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout) + wait
        try:
            return self._once(method, path, data, headers, deadline)
        except Problem as problem:
            lost = problem.kind == "unreachable" and repeatable
            # A repetition with too little time left for the wait that it asks for would be bound to fail.
            if not (lost or problem.retry == "safe") or time.monotonic() + wait >= deadline:
                raise
        return self._once(method, path, data, headers, deadline)

    def _once(self, method: str, path: str, data: Optional[bytes], headers: Dict[str, str], deadline: float) -> Any:
        status, text = self._connection.call(method, path, data, headers, deadline)
        if status == 204:
            return None
        try:
            answer = json.loads(text)
        except ValueError:
            raise Problem.of(status, {"detail": "the answer is no JSON: is this address the service's?"}) from None
        if status >= 400:
            raise Problem.of(status, answer if isinstance(answer, dict) else {})
        return answer
