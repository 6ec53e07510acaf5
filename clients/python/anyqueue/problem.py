"""Errors that the service reports."""

from typing import Any, Dict


class Problem(Exception):
    """A problem in the sense of RFC 9457. `retry` tells what repeating the call would do: it "never" helps, is "safe", or
    "may_duplicate"."""

    def __init__(self, status: int, kind: str, detail: str, retry: str) -> None:
        super().__init__(f"{detail} ({kind}, {status})")
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry = retry

    @classmethod
    def of(cls, status: int, body: Dict[str, Any]) -> "Problem":
        """Creates a problem from the body of an answer; what the body does not tell is unknown."""
        kind = str(body.get("kind", "unknown"))
        return cls(status, kind, str(body.get("detail", "no details")), str(body.get("retry", "never")))
