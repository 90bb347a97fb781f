"""What the next step of the engine reports to vLLM, and how long an idle engine waits.

vLLM steps for as long as a request is parked or its blocks are held, about a
thousand times a second, although nothing can come of it. Here such a step waits
for news instead: of transferd, or of the front that a request is on its way.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

IDLE_WAIT = 0.05  # seconds of one idle step; what a request waits for at most when nobody said that it comes
HOT_WAIT = 0.001  # of one idle step, while a request is on its way
HOT_FOR = 0.25  # how long after the word that one is
_IN_FLIGHT = 4  # empty steps in a row after which nothing can be under way at the worker


@dataclass
class Reports:
    """Request ids, as KVConnectorTransferResults names them."""

    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.received or self.sent)


class Steps:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = Reports()
        self._empty = 0
        self._hot_until = 0.0
        self.idle_total = 0

    def receive(self, request: str, failed: bool) -> None:
        with self._changed:
            self._next.received.add(request)
            if failed:
                self._next.failed.add(request)
            self._changed.notify()

    def send(self, request: str) -> None:
        with self._changed:
            self._next.sent.add(request)
            self._changed.notify()

    def wake(self) -> None:
        """A request, or the end of one, is on its way to the engine."""
        with self._changed:
            self._hot_until = time.monotonic() + HOT_FOR
            self._changed.notify()

    def take(self, is_empty: bool, is_holding: bool) -> Reports:
        """What is to be reported in this step. Waits a moment for it in an idle one."""
        with self._changed:
            if not is_empty or not is_holding:
                self._empty = 0
            else:
                self._empty += 1
            if self._empty > _IN_FLIGHT and not self._next:
                self.idle_total += 1
                hot = time.monotonic() < self._hot_until
                self._changed.wait(HOT_WAIT if hot else IDLE_WAIT)
            out, self._next = self._next, Reports()
            if out:
                self._empty = 0
            return out
