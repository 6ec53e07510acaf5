"""Reports to the service how tasks ended, until it has confirmed."""

import logging
import time
from typing import Any, Callable, Optional

from .backoff import Backoff
from .client import Client, Json
from .problem import Problem
from .task import Cancel, Poison, Postpone, Task

LOG = logging.getLogger("anyqueue")
# With less time left than this, in seconds, no attempt is begun.
LEAST = 0.01


def run_handler(handler: Optional[Callable[[Task], Any]], task: Task) -> Json:
    """Runs the handler, and returns the end of the task."""
    if handler is None:
        return {"status": "failed", "error": f"this worker has no handler for the kind {task.kind!r} of {task.partition!r}"}
    try:
        result = handler(task)
    except Postpone as postponed:
        return {"status": "postponed", "delay_ms": max(0, int(postponed.delay * 1000))}
    except Poison as poison:
        return {"status": "poisonous", "error": str(poison)}
    except Cancel:
        return {"status": "cancelled"}
    except BaseException as error:  # `SystemExit` too: it would end the thread, and the task would be delivered again forever.
        LOG.warning("%s failed", task.id, exc_info=True)
        if task.timed_out:
            return {"status": "timed_out", "error": f"{type(error).__name__}: {error}"}
        return {"status": "failed", "error": f"{type(error).__name__}: {error}"}
    return {"status": "processed"} if result is None else {"status": "processed", "result": result}


def settle(client: Client, task: Task, end: Json, timeout: float) -> None:
    """Settles the task, and repeats that until the service has confirmed or the lease has ended. If the end is refused, the task fails
    with that as the reason."""
    backoff = Backoff()
    while not task.lost:
        left = task._until - time.monotonic()
        if left < LEAST:
            LOG.warning("%s could not be settled before its lease ended, and comes again", task.id)
            return
        refused = _attempt(client, {**end, "delivery": task.delivery}, min(timeout, left))
        if refused is None:
            return
        if refused.retry != "never":
            LOG.warning("%s could not be settled yet: %s", task.id, refused)
            time.sleep(max(0.0, min(backoff.pause(), task._until - time.monotonic())))
        elif end["status"] == "failed":
            LOG.error("%s cannot be settled, and comes again: %s", task.id, refused)
            return
        else:
            end = {"status": "failed", "worker": end.get("worker"), "error": f"its end was refused: {refused}"}


def _attempt(client: Client, end: Json, timeout: float) -> Optional[Problem]:
    try:
        answer = client.settle(end, timeout=timeout)[0]
    except Problem as problem:
        return problem if problem.kind != "unknown" else Problem(problem.status, "unknown", problem.detail, "safe")
    except (TypeError, ValueError) as error:
        return Problem(0, "invalid_input", f"the result is no JSON: {error}", "never")
    if answer["outcome"] == "error":
        return Problem.of(answer["problem"].get("status", 0), answer["problem"])
    # `lost` after a repetition can mean that the first attempt succeeded: there is nothing left to do in either case.
    return None
