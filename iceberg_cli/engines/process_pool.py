"""Forked worker processes that work on batches side by side, and return results in the order of the batches.

A worker is a copy of this process as it is at the fork, so closures need not be pickled; only results travel, each in a
frame that names its batch. A full pipe holds a worker back: none gets further ahead than a batch or two. A worker never
returns into the caller's code: it leaves without flushing buffers or running handlers that belong to its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import pickle
import signal
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NoReturn, TypeVar

from iceberg_cli.encoding.transport import pickled_error
from iceberg_cli.engines.machine import keep_freed_memory
from iceberg_cli.errors import BackendUnavailable

Result = TypeVar("Result")

# Is it an error, index of the batch, bytes of the pickle, number of its buffers.
_FRAME = struct.Struct("<?QQQ")
_SIZE = struct.Struct("<Q")  # of each buffer, before its bytes
_PIPE_BYTES = 1 << 20  # most results fit: the worker goes on while its parent is busy
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(slots=True)
class _Worker:
    process_id: int
    pipe: BinaryIO

    def result(self, index: int) -> Any:
        """The result of batch `index`, which is the next one of this worker."""
        failed, found, size, count = _FRAME.unpack(self._exactly(_FRAME.size))
        data = self._exactly(size)
        buffers = [self._exactly(_SIZE.unpack(self._exactly(_SIZE.size))[0]) for _ in range(count)]
        value = pickle.loads(data, buffers=buffers)  # noqa: S301 - our own process wrote it
        if failed:
            raise value
        if found != index:
            raise AssertionError(f"a worker answered batch {found} where {index} was next")
        return value

    def _exactly(self, size: int) -> bytes:
        data = self.pipe.read(size)
        if len(data) < size:
            raise BackendUnavailable(
                f"Cannot read the table's files: a process that decoded them {self._end()}",
                next_step="Where memory is short the system ends processes: look at its log, then run again.",
            )
        return data

    def _end(self) -> str:
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self.process_id, 0)[1])
        except ChildProcessError:
            return "is gone"
        finally:
            self.process_id = 0
        return f"was ended by signal {-code}" if code < 0 else f"left early with code {code}"

    def stop(self) -> None:
        """End the process, whatever it is doing, and wait for it."""
        self.pipe.close()
        if self.process_id:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.process_id, signal.SIGKILL)
                os.waitpid(self.process_id, 0)


@contextlib.contextmanager
def started(
    workers: int, split: Callable[[int], Iterable[Result]]
) -> Iterator[Callable[[int], Iterator[Result]]]:
    """Fork the workers, and end them at the end of the block.

    No other thread may be alive.

    Args:
        workers: how many.
        split: runs in worker k; the results of batches k, k + workers, k + 2 * workers and so on.

    Yields:
        A function from the number of batches to their results, in the order of the batches. What a worker raises
        is raised there with its fields; a worker that was killed is `BackendUnavailable`.

    Raises:
        OSError: the system has no room for another process; nothing runs.
    """
    running: list[_Worker] = []

    def results(batches: int) -> Iterator[Result]:
        for index in range(batches):
            yield running[index % workers].result(index)

    try:
        # A signal waits until every worker that was forked is known here, and will be ended.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            for number in range(workers):
                running.append(_fork(number, workers, split, [worker.pipe.fileno() for worker in running]))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        yield results
    finally:
        for worker in running:
            worker.stop()


def _fork(number: int, workers: int, split: Callable[[int], Iterable[Any]], others: Sequence[int]) -> _Worker:
    reader, writer = os.pipe()
    try:
        with contextlib.suppress(OSError):  # more than the system allows one user
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        with warnings.catch_warnings():
            # Python warns of idle threads of libraries too; of threads that run Python code none is alive.
            warnings.simplefilter("ignore", DeprecationWarning)
            process_id = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if process_id == 0:
        _run(number, workers, split, writer, [reader, *others])
    os.close(writer)
    return _Worker(process_id, open(reader, "rb"))


def _run(
    number: int, workers: int, split: Callable[[int], Iterable[Any]], writer: int, not_ours: Sequence[int]
) -> NoReturn:
    """The main function of a worker. Its parent decides when to stop: it ignores Ctrl-C and SIGTERM."""
    code = 1
    try:
        for number_of_signal in _STOP_SIGNALS:
            signal.signal(number_of_signal, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        keep_freed_memory()
        gc.freeze()  # looking for garbage among the parent's objects would copy the memory they are in
        # While a worker had the reading end of a pipe open, no writer to it would notice that the parent is gone.
        for descriptor in not_ours:
            os.close(descriptor)
        index = number
        try:
            for result in split(number):
                buffers: list[pickle.PickleBuffer] = []
                data = pickle.dumps(result, 5, buffer_callback=buffers.append)
                _send(writer, data, [buffer.raw() for buffer in buffers], index=index, failed=False)
                index += workers
                del result, data, buffers  # the next batch needs the memory
        except BaseException as error:  # noqa: BLE001 - every one of them reaches the parent
            _send(
                writer, pickled_error(error, "In a process that decodes files:"), [], index=index, failed=True
            )
        code = 0
    finally:
        os._exit(code)


def _send(writer: int, data: bytes, buffers: Sequence[memoryview], *, index: int, failed: bool) -> None:
    parts: list[bytes | memoryview] = [_FRAME.pack(failed, index, len(data), len(buffers)), data]
    for buffer in buffers:
        parts += [_SIZE.pack(buffer.nbytes), buffer]
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[os.write(writer, left) :]
