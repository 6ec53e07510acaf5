"""A kept connection on which one deadline applies to all steps of a call."""

import http.client
import io
import selectors
import socket
import ssl
import threading
import time
from typing import Any, Dict, Optional, Tuple
from urllib.parse import urlsplit

from .problem import Problem

# The longest answer that is read, in bytes. A message in a request has at most 16 MiB, and a third more in base64.
MAX_ANSWER = 256 * 1024 * 1024


class Connection:
    """One connection to a service, opened when it is needed. It belongs to one thread; `interrupt` is for the others."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a service: write http://host:port")
        self._http = _Http(parts.hostname, parts.port, parts.scheme == "https")
        self._base = parts.path.rstrip("/")

    def close(self) -> None:
        """Closes the connection; the next call opens it again."""
        self._http.close()

    def interrupt(self) -> None:
        """Ends the call that is under way, and all later ones. For use from another thread."""
        self._http.interrupt()

    def call(
        self, method: str, path: str, data: Optional[bytes], headers: Dict[str, str], deadline: float
    ) -> Tuple[int, bytes]:
        """Sends a request, and returns the status and the body. `deadline` is a time of `time.monotonic`."""
        http_, sent = self._http, False
        http_.deadline = deadline
        if http_.is_stale():
            http_.close()
        try:
            http_.request(method, self._base + path, data, headers)
            sent = True
            response = http_.getresponse()
            body = response.read(MAX_ANSWER + 1)
            if len(body) <= MAX_ANSWER and response.length:
                raise http.client.IncompleteRead(body, response.length)
        except (OSError, http.client.HTTPException) as error:
            http_.close()
            # The service never acts on an incomplete request.
            retry = "may_duplicate" if sent else "safe"
            raise Problem(0, "unreachable", f"the service did not answer: {error!r}", retry) from error
        if len(body) > MAX_ANSWER:
            http_.close()
            raise Problem(response.status, "too_large", f"the answer has more than {MAX_ANSWER} bytes", "never")
        return response.status, body


class _Http(http.client.HTTPConnection):
    """The standard library's connection, whose steps share a deadline."""

    def __init__(self, host: str, port: Optional[int], tls: bool) -> None:
        super().__init__(host, port or (443 if tls else 80))
        # Decides whether the port appears in `Host`.
        self.default_port = 443 if tls else 80
        self.deadline = 0.0
        self._context = ssl.create_default_context() if tls else None
        self._guard = threading.Lock()
        self._interrupted = False
        # The same as `sock` of the base class.
        self._timed: Optional[_Timed] = None

    def connect(self) -> None:
        if self._interrupted:
            raise ConnectionAbortedError("interrupted")
        raw = self._open()
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            try:
                raw.settimeout(_left(self.deadline))
                raw = self._context.wrap_socket(raw, server_hostname=self.host)
            except BaseException:
                raw.close()
                raise
        with self._guard:
            # From now on, an interrupt finds the socket.
            self._timed = self.sock = _Timed(raw, self)
            interrupted = self._interrupted
        if interrupted:
            self.close()
            raise ConnectionAbortedError("interrupted")

    def _open(self) -> socket.socket:
        """Tries the host's addresses in turn. Looking up the name is the only step that the deadline cannot end."""
        error: OSError = OSError(f"{self.host} has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(self.host, self.port, 0, socket.SOCK_STREAM):
            raw = socket.socket(family, kind, protocol)
            try:
                raw.settimeout(_left(self.deadline))
                raw.connect(address)
                return raw
            except OSError as reason:
                raw.close()
                error = reason
        raise error

    def is_stale(self) -> bool:
        """Whether a kept connection has something to read although nothing was requested: the other end has closed it."""
        if self.sock is None or self._timed is None:
            return False
        with selectors.DefaultSelector() as selector:
            selector.register(self._timed.raw, selectors.EVENT_READ)
            return bool(selector.select(0))

    def interrupt(self) -> None:
        with self._guard:
            self._interrupted = True
            timed = self._timed
        if timed is not None:
            try:
                timed.raw.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It is closed already.


class _Timed:
    """A socket for `http.client`, on which each step may take the time that is left until the deadline."""

    def __init__(self, raw: socket.socket, owner: _Http) -> None:
        self.raw = raw
        self._owner = owner

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            self.raw.settimeout(_left(self._owner.deadline))
            view = view[self.raw.send(view) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self.raw, self._owner))

    def close(self) -> None:
        self.raw.close()


class _Reader(io.RawIOBase):
    def __init__(self, raw: socket.socket, owner: _Http) -> None:
        self._raw = raw
        self._owner = owner
        # It keeps the socket open until the answer is read, even if the connection is closed before.
        self._file = raw.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Optional[int]:
        self._raw.settimeout(_left(self._owner.deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("the deadline of the call is over")
    return left
