"""Calls in actors of a Ray cluster, or of a Ray of this process; a call whose worker is lost runs once more."""

import os
import pickle
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import islice
from queue import SimpleQueue
from typing import Any

from nvtrader_pipelines.components.executor import Call, Executor, WorkerEndedError, outcome_of, start_worker

LOCAL = "local"  # address of a Ray that ends with this process
NOT_INSTALLED = "workers on Ray need it: install it with pip install 'nvtrader-pipelines[ray]'"


class RayExecutor(Executor):
    """Executor whose workers are actors of one processor each; a call whose worker is lost runs once more.

    A call that runs again must send the same messages: those that have arrived are left out.
    """

    def __init__(self, address: str, n_workers: int | None, *shared: Any) -> None:
        """Prepare the workers, one a processor of the cluster if None; Ray starts with the first call.

        Raises:
            ValueError: if Ray is not installed.
        """
        super().__init__()
        try:
            import ray  # pyright: ignore[reportMissingImports] - an optional extra
        except ModuleNotFoundError as error:
            raise ValueError(NOT_INSTALLED) from error
        self._ray: Any = ray
        self._address, self._limit, self._values = address, n_workers, shared
        self._idle: list[Any] = []
        self._workers: dict[Any, Any] = {}  # that start or run a call, by the stream of its messages
        self._n_received = Counter[Call]()
        self._repeated: set[Call] = set()

    def receive(self, timeout: float) -> tuple[Call, Any] | None:
        """Wait for a message of a call, or None as that of an ended call; return None after the seconds."""
        until = time.monotonic() + timeout
        while self._workers:
            ready, _ = self._ray.wait([*self._workers], timeout=max(0.0, until - time.monotonic()))
            if not ready:
                return None
            worker, call = self._workers.pop(stream := ready[0]), self._running.pop(stream, None)
            try:
                message, *outcome = pickle.loads(self._ray.get(next(stream)))
            except self._ray.exceptions.RayError as error:
                self._ray.kill(worker)
                message, outcome, call = None, (None, _ended(error)), self._lost(call)
            else:
                self._put_back(worker, stream, call, message)
            self._dispatch()
            if call:
                if message is None:
                    call.returned, call.error = outcome
                return call, message
        return None

    def end(self) -> None:
        """End the workers at once, also within a call."""
        for worker in [*self._workers.values(), *self._idle]:
            self._ray.kill(worker)

    def _put_back(self, worker: Any, stream: Any, call: Call | None, message: Any) -> None:
        """Keep a worker that has sent a message with its call, as the last; it is idle after its end."""
        if call and message is not None:
            self._workers[stream], self._running[stream] = worker, call  # as the last, so that the workers take turns
            self._n_received[call] += 1
        else:
            self._idle.append(worker)

    def _lost(self, call: Call | None) -> Call | None:
        """Return the call that fails with its worker; None if it runs once more.

        A worker that was lost as it started counts for the next call.
        """
        call = call or (self._waiting.popleft() if self._waiting else None)
        if call is None or call in self._repeated:
            return call
        self._repeated.add(call)
        self._waiting.appendleft(call)
        return None

    def _dispatch(self) -> None:
        while self._waiting and self._idle:
            call = self._waiting.popleft()
            stream = self._run(self._idle.pop(), call, self._n_received[call])
            self._running[stream] = call
        while len(self._workers) - len(self._running) < min(len(self._waiting), self._n_workers - len(self._running)):
            self._run(self._actor.remote(self._shared), Call(_start, ()), 0)

    def _run(self, worker: Any, call: Call, n_known: int) -> Any:
        stream = worker.run.remote(pickle.dumps((call.function, call.arguments)), n_known)
        self._workers[stream] = worker
        return stream

    @cached_property
    def _n_workers(self) -> int:
        """Number of workers, once Ray has started."""
        if not self._ray.is_initialized():
            _start_ray(self._ray, self._address)
        return int(self._ray.cluster_resources()["CPU"]) if self._limit is None else self._limit

    @cached_property
    def _shared(self) -> Any:
        return self._ray.put(pickle.dumps(self._values))

    @cached_property
    def _actor(self) -> Any:
        return self._ray.remote(num_cpus=1)(_Worker)


class _Worker:
    """Worker that runs a call in a thread, beside the stream of its messages."""

    def __init__(self, shared: bytes) -> None:
        self._shared: tuple[Any, ...] = pickle.loads(shared)
        self._messages = SimpleQueue[bytes | None]()
        self._thread = ThreadPoolExecutor(1)
        start_worker(self._messages.put)

    def run(self, call: bytes, n_known: int) -> Iterator[bytes]:
        """Yield the messages of a call but the first, which are known, and its outcome."""
        outcome = self._thread.submit(outcome_of, self._call, call)
        outcome.add_done_callback(lambda _: self._messages.put(None))
        new = islice(iter(self._messages.get, None), n_known, None)
        yield from (message for message in new)  # Ray needs generators all the way
        yield outcome.result()

    def _call(self, call: bytes) -> Any:
        function, arguments = pickle.loads(call)
        return function(*arguments, *self._shared)


def _start(*_: Any) -> None:
    """Do nothing: the end of this call tells that a worker has started."""


def _start_ray(ray: Any, address: str) -> None:
    """Start or connect to Ray, without its handler of SIGTERM, its output, and its reports to its makers.

    Raises:
        ValueError: if no cluster answers at the address.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address != LOCAL:
        require_reachable(address)  # Ray itself tries for ever
    before = signal.getsignal(signal.SIGTERM)
    start = {"include_dashboard": False} if address == LOCAL else {}
    ray.init(address=address, log_to_driver=False, logging_level="error", **start)
    if threading.current_thread() is threading.main_thread():  # elsewhere Ray sets none
        signal.signal(signal.SIGTERM, before)


def require_reachable(address: str) -> None:
    """Raise if nothing answers at the address of a cluster.

    Raises:
        ValueError: with the reason.
    """
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except (OSError, ValueError) as error:
        raise ValueError(f"no Ray answers at {address!r}, which must be HOST:PORT of a cluster: {error}") from error


def _ended(error: Exception) -> WorkerEndedError:
    ended = WorkerEndedError("the worker of a call was lost twice: killed, with its machine, or out of memory")
    ended.__cause__ = error
    return ended
