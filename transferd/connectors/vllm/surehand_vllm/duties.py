"""One thread that does, in order, what has to be asked of transferd.

The scheduler's thread must not wait for a socket, and the thread that reads
transferd's events must not ask anything: both put their work here.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from .wire import Refusal

Job = Callable[[], object]
_DETACHED_WAIT = 0.05


class Duties:
    """A job that raises `unavailable` is done again once transferd is there; it must be safe to repeat."""

    def __init__(self, attached: threading.Event, log: logging.Logger) -> None:
        self._attached, self._log = attached, log
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="surehand-duties", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, job: Job) -> None:
        self._jobs.put(job)

    def close(self) -> None:
        self._stop.set()
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Refusal as e:
                if e.code not in ("unavailable", "not_ready"):
                    self._log.error("a duty was refused: %s", e)
                    continue
                if self._stop.wait(_DETACHED_WAIT if not self._attached.wait(_DETACHED_WAIT) else 0.01):
                    return
                self._jobs.put(job)
            except Exception:
                self._log.exception("a duty failed; its memory stays held")
