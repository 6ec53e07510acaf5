"""The task that a handler gets, and the exceptions that it can raise."""

import base64
import json
import threading
import time
from typing import Any, Dict, Optional, Union

# Longer texts are cut.
MAX_PROGRESS_BYTES = 1024


class Postpone(Exception):
    """Raised by a handler: the task is tried again after `delay` seconds, and no attempt is counted."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"postponed by {delay} s")
        self.delay = delay


class Poison(Exception):
    """Raised by a handler: the task must not be tried again, and becomes a dead letter with this text."""


class Cancel(Exception):
    """Raised by a handler: the task is no longer wanted, and is removed."""


class Task:
    """A message that is being handled. `message` is all that the service sent about it."""

    def __init__(self, message: Dict[str, Any], lease: Optional[float]) -> None:
        granted = message["lease_ms"] / 1000
        self.message = message
        self.delivery: str = message["delivery"]
        self.partition: str = message["partition"]
        self.id: str = message["id"]
        self.kind: Optional[str] = message.get("kind")
        self.headers: Dict[str, str] = message.get("headers") or {}
        self.delivery_count: Optional[int] = message.get("delivery_count")
        # How long it is held with each extension, and until when it is held now, by `time.monotonic`.
        self._lease = lease or granted
        self._until = time.monotonic() + granted
        # When it will have run for as long as it may, by the same clock.
        most = message.get("max_duration_ms")
        self._deadline: Optional[float] = None if most is None else time.monotonic() + most / 1000
        self._timed_out = False
        self._cancel_requested = False
        self._lost = False
        self._progress: Optional[str] = None
        self._asked = threading.Event()

    @property
    def payload(self) -> Union[str, bytes]:
        """The payload: text if the service sent it as text, otherwise bytes."""
        text = self.message.get("payload")
        return base64.b64decode(self.message["payload_base64"]) if text is None else str(text)

    def json(self) -> Any:
        """Returns the payload, parsed as JSON."""
        return json.loads(self.payload)

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody wants the task to be cancelled: then stop, and raise `Cancel`."""
        return self._cancel_requested

    @property
    def lost(self) -> bool:
        """Whether the task is no longer held, so that somebody else may have it now: then stop. Nothing is settled."""
        return self._lost

    @property
    def timed_out(self) -> bool:
        """Whether the task has run for as long as its `max_duration_ms` allows: then stop, and raise any exception. A few seconds later the
        service ends the task."""
        return self._timed_out

    @property
    def progress(self) -> Optional[str]:
        """The progress of the task, in the handler's own words. It is shown with the worker after the next heartbeat, within a few
        seconds, and kept with the end of the task where the service keeps ends."""
        return self._progress

    @progress.setter
    def progress(self, text: str) -> None:
        # The cut must not leave a part of a character.
        self._progress = str(text).encode("utf-8", "replace")[:MAX_PROGRESS_BYTES].decode("utf-8", "ignore")

    def wait(self, seconds: float) -> bool:
        """Waits until the handler is asked to stop, for at most this long, and returns whether it was asked. Use this instead of
        `time.sleep`."""
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
