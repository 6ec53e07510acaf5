"""What a handler gets, and what it can raise."""

import base64
import json
import threading
import time
from typing import Any, Dict, Optional, Union

# What is longer is cut.
MAX_PROGRESS_BYTES = 1024


class Postpone(Exception):
    """Raised by a handler: try again after `delay` seconds; no attempt is counted."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"postponed by {delay} s")
        self.delay = delay


class Poison(Exception):
    """Raised by a handler: the task must not be tried again, and becomes a dead letter with this text."""


class Cancel(Exception):
    """Raised by a handler: the task is not wanted any more, and is removed."""


class Task:
    """A message that is handled. `message` is all that the service told of it."""

    def __init__(self, message: Dict[str, Any], lease: Optional[float]) -> None:
        granted = message["lease_ms"] / 1000
        self.message = message
        self.delivery: str = message["delivery"]
        self.partition: str = message["partition"]
        self.id: str = message["id"]
        self.kind: Optional[str] = message.get("kind")
        self.headers: Dict[str, str] = message.get("headers") or {}
        self.delivery_count: Optional[int] = message.get("delivery_count")
        # For how long it is held each time, and until when it is, by `time.monotonic`.
        self._lease = lease or granted
        self._until = time.monotonic() + granted
        # When it has run for as long as it may, by the same clock.
        most = message.get("max_duration_ms")
        self._deadline: Optional[float] = None if most is None else time.monotonic() + most / 1000
        self._timed_out = False
        self._cancel_requested = False
        self._lost = False
        self._progress: Optional[str] = None
        self._asked = threading.Event()

    @property
    def payload(self) -> Union[str, bytes]:
        """The content: text where it is that, else bytes."""
        text = self.message.get("payload")
        return base64.b64decode(self.message["payload_base64"]) if text is None else str(text)

    def json(self) -> Any:
        """The content as JSON."""
        return json.loads(self.payload)

    @property
    def cancel_requested(self) -> bool:
        """Somebody wants the task to be cancelled: stop, and raise `Cancel`."""
        return self._cancel_requested

    @property
    def lost(self) -> bool:
        """It is not held any more, and somebody else may have it now: stop. Nothing is settled."""
        return self._lost

    @property
    def timed_out(self) -> bool:
        """It has run for as long as its `max_duration_ms` allows: stop, and raise anything. A few seconds later the service ends it."""
        return self._timed_out

    @property
    def progress(self) -> Optional[str]:
        """How far it has come, in words of the handler. What it is set to is shown with the worker, at its next beat, within some seconds."""
        return self._progress

    @progress.setter
    def progress(self, text: str) -> None:
        # A cut must not leave a part of a letter.
        self._progress = str(text).encode("utf-8", "replace")[:MAX_PROGRESS_BYTES].decode("utf-8", "ignore")

    def wait(self, seconds: float) -> bool:
        """Waits until it is asked to stop, at most for so long; whether it is. Use it in place of `time.sleep`."""
        return self._asked.wait(seconds)

    def _ask_to_cancel(self) -> None:
        self._cancel_requested = True
        self._asked.set()

    def _time_out(self) -> None:
        self._timed_out = True
        self._asked.set()

    def _lose(self) -> None:
        self._lost = True
        self._asked.set()
