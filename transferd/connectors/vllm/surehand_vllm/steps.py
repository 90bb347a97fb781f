"""What the next step of the engine reports to vLLM, and how long an idle engine waits.

vLLM steps for as long as a request is parked or its blocks are held, about a
thousand times a second, although nothing can come of it. Here such a step waits
for news instead: of transferd, or of the front that a request is on its way.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

# An idle step waits for a share of the time since there was news last. What
# nobody announced (a request of a client that is not the front) is seen that
# much later, at most.
SHARE = 0.25
LEAST_WAIT, MOST_WAIT = 0.001, 4.0  # seconds
_IN_FLIGHT = 4  # empty steps in a row after which nothing can be under way at the worker


@dataclass
class Reports:
    """Request ids, as KVConnectorTransferResults names them."""

    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    sent: set[str] = field(default_factory=set)
    watch: int = 0  # number of this step for the words on its layers; 0: nobody wants them

    def __bool__(self) -> bool:
        return bool(self.received or self.sent)


class Steps:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next = Reports()
        self._empty = 0
        self._news = time.monotonic()
        self.idle_total = 0

    def receive(self, request: str, failed: bool) -> None:
        with self._changed:
            self._next.received.add(request)
            if failed:
                self._next.failed.add(request)
            self._wake()

    def send(self, request: str) -> None:
        with self._changed:
            self._next.sent.add(request)
            self._wake()

    def wake(self) -> None:
        """A request, or the end of one, is on its way to the engine."""
        with self._changed:
            self._wake()

    def _wake(self) -> None:
        self._news = time.monotonic()
        self._changed.notify()

    def take(self, is_empty: bool, is_holding: bool) -> Reports:
        """What is to be reported in this step. Waits a moment for it in an idle one."""
        with self._changed:
            if is_empty and is_holding and not self._next:
                self._empty += 1
            else:
                self._empty, self._news = 0, time.monotonic()
            if self._empty > _IN_FLIGHT:
                self.idle_total += 1
                since = time.monotonic() - self._news
                self._changed.wait(min(max(SHARE * since, LEAST_WAIT), MOST_WAIT))
            out, self._next = self._next, Reports()
            return out
