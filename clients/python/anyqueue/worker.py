"""A worker that pulls tasks, runs their handlers and settles them."""

import enum
import logging
import queue
import signal
import threading
import time
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from .client import Client, Json
from .keeper import Keeper
from .puller import Puller
from .registrar import LEAVE, Registrar
from .settler import run_handler, settle
from .task import Task

LOG = logging.getLogger("anyqueue")
Handler = Callable[[Task], Any]

MAX_CONCURRENCY = 256
MAX_PARTITIONS = 64
MAX_WAIT = 30.0
# How long after the deadline the worker's own threads may take to end, in seconds.
GRACE = 1.0


class _Order(enum.Enum):
    """What the worker's main loop receives, apart from errors that end it."""

    STOP = enum.auto()  # from whoever runs the worker
    ORDERED = enum.auto()  # from the service
    DONE = enum.auto()  # no handler is running any more


class Worker:
    """Runs handlers in threads. It pulls only as many tasks as it has free threads."""

    def __init__(
        self,
        url: str,
        token: Optional[str] = None,
        *,
        concurrency: int = 4,
        lease: Optional[float] = None,
        wait: float = 20.0,
        drain: float = 30.0,
        timeout: float = 30.0,
        name: Optional[str] = None,
    ) -> None:
        """All times are in seconds: `lease` is how long a task is held with each extension (by default as the queue is configured), `wait`
        how long a pull waits, `drain` how long running handlers may take when the worker stops, and `timeout` limits a call. No other
        worker may have the same `name`."""
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency is {concurrency}: 1 to {MAX_CONCURRENCY}")
        if not 0 < wait <= MAX_WAIT:
            raise ValueError(f"wait is {wait}: more than 0 and at most {MAX_WAIT} seconds")
        if (lease is not None and lease <= 0) or drain < 0 or timeout <= 0:
            raise ValueError("lease and timeout are more than 0 seconds, and drain is not less than 0")
        self.name = name or f"python-{uuid.uuid4()}"
        self._url, self._token, self._timeout = url, token, timeout
        self._connect()  # A bad address is refused here.
        self._concurrency, self._lease, self._wait = concurrency, lease, wait
        self._drain = drain
        self._handlers: Dict[Tuple[str, Optional[str]], Handler] = {}
        # A signal handler can put to this queue, but could not set an event.
        self._orders: "queue.SimpleQueue[Union[_Order, BaseException]]" = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._pulled: "queue.Queue[Optional[Task]]" = queue.Queue(2 * concurrency)
        self._free = threading.Condition()
        self._busy = 0
        self._quiet = False
        self._ordered = False
        self._recycled = False
        self._keeper = Keeper(self._connect)
        self._registrar = Registrar(self._connect, self.name, self._keeper, self)
        self._puller: Optional[Puller] = None
        self._started = False

    def handler(self, partition: str, kind: Optional[str] = None) -> Callable[[Handler], Handler]:
        """Decorates the handler for a partition, or for one kind of task there. Partitions that are named first are preferred. A task
        without a handler fails."""

        def add(handler: Handler) -> Handler:
            if self._started:
                raise RuntimeError("the worker runs already: add handlers before")
            if len({name for name, _ in self._handlers} | {partition}) > MAX_PARTITIONS:
                raise ValueError(f"a worker has at most {MAX_PARTITIONS} partitions: run several")
            if (partition, kind) in self._handlers:
                raise ValueError(f"{partition!r} has a handler of the kind {kind!r} already")
            self._handlers[partition, kind] = handler
            return handler

        return add

    def stop(self) -> None:
        """Stops pulling, and lets running handlers finish; when it is called again, the worker no longer waits for them. It can be called
        from any thread, even before `run`."""
        self._orders.put(_Order.STOP)

    @property
    def state(self) -> str:
        """`working`, `quiet` when it was told to take no new tasks, or `draining` while it stops."""
        if self._ordered or self._stopping.is_set():
            return "draining"
        return "quiet" if self._quiet else "working"

    @property
    def recycled(self) -> bool:
        """Whether the service told the worker to end so that it is started again: then end the process with an exit code that tells its
        supervisor."""
        return self._recycled

    def obey(self, order: str) -> None:
        """Obeys an order of the service. Orders are repeated; once the worker stops, no other order counts."""
        if order in ("stop", "recycle"):
            self._recycled = self._recycled or order == "recycle"
            if not self._ordered:
                self._ordered = True
                self._orders.put(_Order.ORDERED)
        elif order in ("quiet", "go_on"):
            with self._free:
                was, self._quiet = self._quiet, order == "quiet"
                if self._quiet and not was and self._puller is not None:
                    # A waiting pull would bring new tasks.
                    self._puller.deadline = time.monotonic() + self._drain
                    self._puller.cut()
                self._free.notify_all()

    def run(self, handle_signals: bool = False) -> bool:
        """Works until it is stopped; with `handle_signals`, SIGTERM and SIGINT stop it too (in the main thread only). A worker runs only
        once.

        Returns whether all running handlers have finished. A handler that has not goes on in its thread, but its lease is no longer
        extended, and its task is delivered again when that ends.

        Raises a `Problem` if the service refuses its pulls."""
        if self._started or not self._handlers:
            raise RuntimeError("a worker runs once" if self._started else "add a handler first")
        self._started = True
        before = self._catch_signals() if handle_signals else {}
        try:
            return self._work()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _catch_signals(self) -> Dict[int, Any]:
        catch = lambda _number, _frame: self.stop()  # noqa: E731
        return {number: signal.signal(number, catch) for number in (signal.SIGTERM, signal.SIGINT)}

    def _work(self) -> bool:
        partitions = list(dict.fromkeys(partition for partition, _ in self._handlers))
        puller = self._puller = Puller(self._connect, self.name, partitions, self._wait, self._lease)
        keeping = self._start(self._keeper.run)
        registered = self._start(lambda: self._registrar.run(partitions, self._concurrency))
        pulling = self._start(lambda: self._pull(puller))
        running = [self._start(self._run_tasks) for _ in range(self._concurrency)]
        order = self._orders.get()
        deadline = time.monotonic() + self._drain
        puller.deadline = deadline
        with self._free:
            self._stopping.set()
            self._free.notify_all()
        puller.stop()
        self._registrar.hurry()
        for _ in running:
            self._pulled.put(None)
        # If the service had stopped the worker, a call of `stop` is the first one.
        finished = self._finish(running, deadline, 2 if order is _Order.ORDERED else 1)
        pulling.join(max(GRACE, deadline - time.monotonic()) if finished else GRACE)
        self._keeper.end()
        keeping.join(GRACE)
        self._registrar.end()
        registered.join(LEAVE + GRACE)
        if isinstance(order, BaseException):
            raise order
        return finished

    def _finish(self, running: List[threading.Thread], deadline: float, stops: int) -> bool:
        """Waits for the handlers, until the deadline or until the worker was told to stop this many more times."""

        def tell() -> None:
            for thread in running:
                thread.join()
            self._orders.put(_Order.DONE)

        threading.Thread(target=tell, daemon=True).start()
        try:
            while stops > 0:
                order = self._orders.get(timeout=max(0.0, deadline - time.monotonic()))
                if order is not _Order.ORDERED:
                    stops = stops - 1 if order is _Order.STOP else 0
        except queue.Empty:
            pass
        return not any(thread.is_alive() for thread in running)

    def _connect(self) -> Client:
        return Client(self._url, self._token, self._timeout)

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # The worker must not go on while a part of it is dead.
                self._orders.put(error)

        thread = threading.Thread(target=guarded, name=self.name, daemon=True)
        thread.start()
        return thread

    def _pull(self, puller: Puller) -> None:
        try:
            while not self._stopping.is_set():
                with self._free:
                    while (self._quiet or self._busy == self._concurrency) and not self._stopping.is_set():
                        self._free.wait()
                    free = self._concurrency - self._busy
                    puller.renew()
                if free and not self._stopping.is_set():
                    self._accept(puller, puller.pull(free))
        finally:
            puller.close()

    def _accept(self, puller: Puller, messages: List[Json]) -> None:
        tasks = [Task(message, self._lease) for message in messages]
        with self._free:
            unwanted = self._quiet or self._stopping.is_set()
            if not unwanted:
                self._busy += len(tasks)
                for task in tasks:
                    self._keeper.hold(task)
                    self._pulled.put_nowait(task)
        if unwanted:
            puller.release(tasks)

    def _run_tasks(self) -> None:
        with self._connect() as client:
            while True:
                task = self._pulled.get()
                if task is None:
                    return
                self._run_task(client, task)
                with self._free:
                    self._busy -= 1
                    self._free.notify_all()

    def _run_task(self, client: Client, task: Task) -> None:
        if self._stopping.is_set():
            # The task has not begun.
            end: Json = {"status": "waiting"}
        else:
            end = run_handler(self._handlers.get((task.partition, task.kind)) or self._handlers.get((task.partition, None)), task)
            end["worker"] = self.name
            if task.progress is not None:
                end["progress"] = task.progress
        self._keeper.let_go(task)
        settle(client, task, end, self._timeout)
