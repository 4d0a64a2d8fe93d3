"""Calls in worker processes, which end with their caller; one that is killed fails its call and is replaced."""

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any


class WorkerEndedError(RuntimeError):
    """Worker process that ended before its call had returned."""


@dataclass(eq=False)
class Call:
    """Call of a function in a worker, and its outcome once it has ended."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    returned: Any = None
    error: Exception | None = None
    is_taken: bool = False  # whether somebody asked for the result

    def result(self) -> Any:
        """Return the result of an ended call, or raise its error: `WorkerEndedError` if its worker was killed."""
        self.is_taken = True
        if self.error:
            raise self.error
        return self.returned


class Executor(AbstractContextManager["Executor"], ABC):
    """Workers of calls; leaving the context awaits the calls, or ends the workers at once after an error.

    Errors of calls whose results nobody takes are printed.
    """

    def __init__(self) -> None:
        self._running: dict[Any, Call] = {}  # by what its messages come from
        self._waiting: deque[Call] = deque()

    def __exit__(self, *exception: object) -> None:
        """Await the calls unless there is an error, and end the workers."""
        try:
            while (self._running or self._waiting) and exception[0] is None:
                call, message = self.receive(0.5) or (None, None)
                if call and message is None and call.error and not call.is_taken:
                    traceback.print_exception(call.error)
        finally:
            self.end()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Call:
        """Call a function in a worker, with the arguments and the values that all calls share."""
        call = Call(function, arguments)
        self._waiting.append(call)
        self._dispatch()
        return call

    @abstractmethod
    def receive(self, timeout: float) -> tuple[Call, Any] | None:
        """Wait for a message of a call, or None as that of an ended call; return None after the seconds."""

    @abstractmethod
    def end(self) -> None:
        """End the workers at once, also within a call."""

    @abstractmethod
    def _dispatch(self) -> None:
        """Give the calls that wait to idle workers, or to new ones if some have not started or were killed."""


class ProcessExecutor(Executor):
    """Executor whose workers are forked from a server process, and have a pipe to the caller for themselves."""

    def __init__(self, n_workers: int | None, preloaded: Sequence[str] = (), *shared: Any) -> None:
        """Prepare the workers, one a core if None, which start with their first call and get the shared values once."""
        super().__init__()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(preloaded))  # of no effect if the server is running
        self._n_workers = (os.cpu_count() or 1) if n_workers is None else n_workers
        self._shared = shared
        self._processes: dict[Any, Any] = {}  # by pipe

    def receive(self, timeout: float) -> tuple[Call, Any] | None:
        """Wait for a message of a call, or None as that of an ended call; return None after the seconds."""
        ready: list[Any] = wait(self._running, timeout)
        if not ready:
            return None
        call = self._running.pop(pipe := ready[0])
        try:
            message, call.returned, call.error = pipe.recv()
        except (EOFError, OSError):  # OSError: the worker was killed in the middle of a message
            self._processes.pop(pipe).join()
            pipe.close()
            advice = "it was killed, or the machine is out of memory; free some, or use fewer processes"
            message, call.error = None, WorkerEndedError(f"the process of a call ended by itself: {advice}")
        if message is not None:
            self._running[pipe] = call  # as the last, so that the workers take turns
        self._dispatch()
        return call, message

    def end(self) -> None:
        """End the workers at once, also within a call."""
        for process in self._processes.values():
            process.kill()
        for pipe, process in self._processes.items():
            process.join()
            pipe.close()

    def _dispatch(self) -> None:
        while self._waiting and len(self._running) < self._n_workers:
            idle = self._processes.keys() - self._running.keys()
            pipe = next((pipe for pipe in idle if self._processes[pipe].is_alive()), None) or self._start()
            call = self._waiting.popleft()
            with suppress(OSError):  # the worker was killed just now, which `receive` notices
                pipe.send((call.function, call.arguments))
            self._running[pipe] = call

    def _start(self) -> Any:
        """Start a worker and return the pipe to it."""
        pipe, far_end = self._context.Pipe()
        process = self._context.Process(target=_work, args=(far_end, self._shared), daemon=True)
        with _STARTING:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")  # a script without guard would run again in the worker
            try:
                process.start()
            finally:
                sys.modules["__main__"] = main
        far_end.close()  # so that the pipe ends with the worker
        self._processes[pipe] = process
        return pipe


_STARTING = threading.Lock()  # of workers, by several threads
_senders: list[Callable[[bytes], Any]] = []  # in a worker: what sends to the caller


def send(message: Any) -> None:
    """Send a message other than None from within a call to the caller's `receive`."""
    _senders[0](pickle.dumps((message, None, None)))


def start_worker(sender: Callable[[bytes], Any]) -> None:
    """Make this process a worker, whose calls `send` by this."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C
    _senders.append(sender)


def outcome_of(function: Callable[..., Any], *arguments: Any) -> bytes:
    """Call a function and pickle None as the message of its end, what it returned, and its error."""
    try:
        return pickle.dumps((None, function(*arguments), None))
    except Exception as error:  # noqa: BLE001 - the caller raises it
        return _pickled_error(error)


def _work(pipe: Any, shared: tuple[Any, ...]) -> None:
    start_worker(pipe.send_bytes)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    gc.freeze()  # a garbage collection would copy every page that workers share
    with suppress(EOFError, ConnectionError):  # the caller has ended
        for function, arguments in iter(pipe.recv, None):
            pipe.send_bytes(outcome_of(function, *arguments, *shared))


def _pickled_error(error: Exception) -> bytes:
    """Error of a call as its caller reads it, with the traceback; as text if it cannot be pickled there and back."""
    error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickled := pickle.dumps((None, None, error)))
    except Exception:  # noqa: BLE001 - whatever its own methods raise
        text = "".join(traceback.format_exception(error))
        return pickle.dumps((None, None, RuntimeError(f"a call in a worker process failed:\n{text}")))
    return pickled


def _end_with_caller() -> None:
    """End the process with its caller, even within a call."""
    if caller := multiprocessing.parent_process():
        caller.join()
    os._exit(1)
