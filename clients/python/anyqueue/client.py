"""The calls, over one connection that is kept."""

import json
import time
from types import TracebackType
from typing import Any, Dict, List, Optional, Sequence, Type
from urllib.parse import quote, urlencode

from .connection import Connection
from .problem import Problem

Json = Dict[str, Any]


class Client:
    """Talks to one service. Not for several threads at once: give each its own."""

    def __init__(self, url: str, token: Optional[str] = None, timeout: float = 30.0) -> None:
        """`timeout` is in seconds, for a whole call beyond the wait that it asks for, its repetition included. Only looking up the
        host's name is not bounded by it: write an address where that matters."""
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
        """Ends the call that is under way, and all later ones, from another thread: they raise a `Problem`."""
        self._connection.interrupt()

    def push(self, partition: str, *messages: Json) -> List[Json]:
        """Pushes up to 1000 messages; an answer for each, in order."""
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
        """Pulls up to `max` messages, waiting `wait` seconds for the first. With a `worker`, say with the next pull that you `received` the
        `pull` of the last one: what was sent to this name and not received goes back, also while somebody works on it."""
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
        """Ends deliveries; an answer for each. After an answer that was lost, a repetition says `lost`."""
        answer: List[Json] = self._call("POST", "/v1/settle", list(ends), repeatable=True, timeout=timeout)
        return answer

    def extend(self, deliveries: Sequence[str], lease: float, timeout: Optional[float] = None) -> List[Json]:
        """Holds deliveries for `lease` seconds from now; an answer for each."""
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
        """Registers a worker, whose beats count for `valid` seconds. The answer has the `session` that its beats need."""
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
        """A worker that registered says how it is and what it holds, and hears its `order` and what to `cancel`."""
        request: Json = {"state": state, "held": list(held)}
        if memory_bytes is not None:
            request["memory_bytes"] = memory_bytes
        path = f"/v1/workers/{quote(name, '')}/beat"
        answer: Json = self._call("POST", path, request, repeatable=True, timeout=timeout, session=session)
        return answer

    def leave(self, name: str, session: str, timeout: Optional[float] = None) -> None:
        """A worker that registered has ended."""
        self._call("DELETE", f"/v1/workers/{quote(name, '')}", timeout=timeout, session=session)

    def task(self, partition: str, id: str) -> Json:
        """What is known of a task."""
        answer: Json = self._call("GET", self._task(partition, id), repeatable=True)
        return answer

    def result(self, partition: str, id: str, wait: float = 0.0) -> Json:
        """The task once it has ended, or as it stands after `wait` seconds."""
        path = self._task(partition, id, "/result", {"wait_ms": str(int(wait * 1000))})
        answer: Json = self._call("GET", path, wait=wait, repeatable=True)
        return answer

    def cancel(self, partition: str, id: str) -> Json:
        """Removes a task that waits, or asks whoever runs it to stop."""
        answer: Json = self._call("POST", self._task(partition, id, "/cancel"))
        return answer

    def partition(self, partition: str) -> Json:
        """How full a queue is."""
        answer: Json = self._call("GET", f"/v1/partitions/{quote(partition, '')}", repeatable=True)
        return answer

    def dead_letters(self, partition: str) -> Json:
        """A page of dead letters, with their payloads."""
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
        """Repeats once where that is safe: the service says so, or the request is and its answer was lost."""
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = self._headers if session is None else {**self._headers, "worker-session": session}
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout) + wait
        try:
            return self._once(method, path, data, headers, deadline)
        except Problem as problem:
            lost = problem.kind == "unreachable" and repeatable
            # A repetition that could not wait as long as it asks for would fail for nothing.
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
