"""Errors, as the service tells them."""

from typing import Any, Dict


class Problem(Exception):
    """A problem of RFC 9457. `retry` is what a repetition would do: "never" helps, is "safe", or "may_duplicate"."""

    def __init__(self, status: int, kind: str, detail: str, retry: str) -> None:
        super().__init__(f"{detail} ({kind}, {status})")
        self.status = status
        self.kind = kind
        self.detail = detail
        self.retry = retry

    @classmethod
    def of(cls, status: int, body: Dict[str, Any]) -> "Problem":
        """From the body of an answer; what it does not say is unknown."""
        kind = str(body.get("kind", "unknown"))
        return cls(status, kind, str(body.get("detail", "no details")), str(body.get("retry", "never")))
