"""A network between a client and a service that a test can break."""

import socket
import threading
from typing import List, Optional, Tuple


class Relay:
    """Passes bytes on, unless it is down or holds back answers."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: List[Tuple[socket.socket, socket.socket]] = []
        self._down = False
        self._hold_after: Optional[bytes] = None
        self.refused = threading.Semaphore(0)
        self.held = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Closes all connections, like a service that has kept them for too long."""
        with self._lock:
            pairs, self._open = self._open, []
        for pair in pairs:
            for one in pair:
                _end(one)

    def go_down(self) -> None:
        """Closes all connections, and all new ones until `come_up`."""
        self._down = True
        self.cut()

    def come_up(self) -> None:
        self._down = False

    def hold_answer_with(self, text: str) -> None:
        """Holds back the next answer that contains this text."""
        self._hold_after = text.encode()

    def close(self) -> None:
        _end(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._down:
                near.close()
                self.refused.release()
                continue
            far = socket.create_connection(self._target)
            with self._lock:
                self._open.append((near, far))
            threading.Thread(target=self._pass, args=(near, far, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, True), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        try:
            while data := source.recv(65536):
                if answers and self._hold_after is not None and self._hold_after in data:
                    self._hold_after = None
                    self.held.set()
                    # The service believes that the answer was sent.
                    continue
                sink.sendall(data)
        except OSError:
            pass  # The connection was cut.
        _end(source)
        _end(sink)


def _end(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # It has ended already.
    one.close()
