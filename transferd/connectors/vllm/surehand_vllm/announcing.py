"""What of a source is written and announced while P computes the end of its prompt.

    worker                     pipe            scheduler's side
    a layer is written   --  step, layer -->   its pieces' CRC32C, announce

The worker says so after each layer of a step that is watched, and of no other.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

from .worker import WORD


class Words:
    """One thread that reads the worker's words."""

    def __init__(self, fd: int, wrote: Callable[[int, int], None]) -> None:
        self._fd, self._wrote = fd, wrote
        self._stop, self._wake = os.pipe2(os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="surehand-layers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        os.close(self._wake)
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        os.close(self._stop)
        os.close(self._fd)

    def _run(self) -> None:
        rest, news = b"", select.poll()
        news.register(self._fd, select.POLLIN)
        news.register(self._stop, select.POLLIN)
        while True:
            if self._stop in dict(news.poll()):
                return
            got = os.read(self._fd, 64 * WORD.size)
            if not got:
                return  # the worker is gone, and the engine with it
            rest += got
            whole = len(rest) - len(rest) % WORD.size
            for step, place in WORD.iter_unpack(rest[:whole]):
                self._wrote(step, place)
            rest = rest[whole:]
