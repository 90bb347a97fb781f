"""P's side of attempts: the blocks of a finished prefill are the source that D reads.

    vLLM's scheduler        this                              transferd
    request finished   -->  open, announce, seal         -->  grant
                            (the front hears: sealed)
                            freed, report: sent          <--  closed, then drained

vLLM keeps the blocks of a finished request until it is reported as sent. A
prefill that is preempted has nothing open yet: it is computed again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

import google_crc32c

from . import wire
from .daemon import DRAINED, Daemon, Event
from .duties import Duties
from .front import Front
from .layout import Form
from .steps import Steps
from .wire import Key, Refusal


@dataclass
class Source:
    key: Key
    plan: Any
    request: str
    prompt: int = 0
    cached: int = 0
    blocks: tuple[list[int], ...] = ()
    finished: bool = False  # computed: vLLM keeps the blocks until told
    held: bool = False  # transferd may read the memory
    over: bool = False
    drained: bool = False
    told: bool = False
    drop: str = ""  # why nobody wants it any more


class Sources:
    """Called by the scheduler's thread, by transferd's and the front's readers and by the duties' thread."""

    def __init__(self, daemon: Daemon, duties: Duties, steps: Steps, front: Front, form: Form, segment: memoryview, log: logging.Logger) -> None:
        self._daemon, self._duties, self._steps, self._front = daemon, duties, steps, front
        self._form, self._segment, self._log = form, segment, log
        self._lock = threading.RLock()
        self._by_request: dict[str, Source] = {}
        self._by_key: dict[Key, Source] = {}

    def count(self) -> int:
        with self._lock:
            return sum(1 for s in self._by_request.values() if s.finished)

    # The scheduler's thread.

    def new(self, request: str, key: Key, plan: Any) -> None:
        with self._lock:
            s = Source(key, plan, request)
            if key in self._by_key:
                self._fail(s, Refusal("conflict", f"{key} has another request here"))
                return
            self._by_request[request] = self._by_key[key] = s

    def cached(self, request: str, tokens: int) -> None:
        with self._lock:
            if request in self._by_request:
                self._by_request[request].cached = tokens

    def finished(self, request: str, computed: bool, prompt: int, blocks: tuple[list[int], ...]) -> bool | None:
        """Whether vLLM keeps the blocks until told; None: not one of ours."""
        with self._lock:
            s = self._by_request.get(request)
            if s is None:
                return None
            n = self._form.blocks_for(prompt)
            if not computed or any(len(ids) < n for ids in blocks):
                self._fail(s, Refusal("cancelled" if not computed else "engine", "the prefill did not end"))
                self._forget(s)
                return False
            s.finished, s.prompt = True, prompt
            s.blocks = tuple(ids[:n] for ids in blocks)
        self._duties.put(lambda: self._publish(s))
        return True

    def drop(self, key: Key) -> None:
        """The front's word: nobody wants this source any more."""
        with self._lock:
            s = self._by_key.get(key)
            if s is None or s.drop:
                return
            s.drop = "cancelled"
            if s.held:
                self._duties.put(lambda: self._close(s))

    # Duties.

    def _publish(self, s: Source) -> None:
        with self._lock:
            if s.drop:
                self._fail(s, Refusal(s.drop, "nobody wants the prefill any more"))
                self._return(s)
                return
        digests = [google_crc32c.value(bytes(self._segment[at : at + n]))
                   for at, n in zip(self._form.offsets(s.blocks), self._form.lengths(s.blocks))]
        try:
            opened = self._daemon.open_source(s.key, _spec(s, self._form))
        except Refusal as e:
            self._refused(s, e)
            return
        with self._lock:
            s.held = True
        try:
            self._daemon.announce(s.key, range(len(digests)), digests)
            self._daemon.seal(s.key)
        except Refusal as e:
            with self._lock:
                self._fail(s, e)
                s.drop = s.drop or e.code
                self._end(s)
            return
        with self._lock:
            s.told = True
            self._front.tell(source=_notice(s, opened.capability))
            if s.drop or s.drained:
                self._end(s)

    def _refused(self, s: Source, e: Refusal) -> None:
        with self._lock:
            self._fail(s, e)
            s.drop = s.drop or e.code
            if e.code == "unavailable":  # it may be open: the drained event tells
                s.held = True
                self._end(s)
                return
            self._return(s)

    def _end(self, s: Source) -> None:
        """With the lock: sees to it that transferd lets the memory go."""
        if s.drained:
            self._duties.put(lambda: self._free(s))
        elif not s.over:
            self._duties.put(lambda: self._close(s))

    def _close(self, s: Source) -> None:
        if s.over or s.drained or not s.held:
            return
        try:
            self._daemon.close_source(s.key, s.drop or "closed")
        except Refusal as e:
            if e.code not in ("closed", "not_ready"):  # a repeat, or another life, whose events tell
                raise

    def _free(self, s: Source) -> None:
        with self._lock:
            if not s.held:
                return
        self._daemon.freed(s.key, True)
        with self._lock:
            if not s.held:
                return
            s.held = False
            self._return(s)

    def _return(self, s: Source) -> None:
        """With the lock: nobody reads the blocks any more; vLLM may have them."""
        self._steps.send(s.request)
        self._forget(s)
        freed = wire.ConnectorMessage().freed
        freed.attempt.CopyFrom(s.key.message())
        freed.source = True
        self._front.tell(freed=freed)

    def _forget(self, s: Source) -> None:
        self._by_request.pop(s.request, None)
        if self._by_key.get(s.key) is s:
            del self._by_key[s.key]

    def _fail(self, s: Source, e: Refusal) -> None:
        if s.told:
            return
        s.told = True
        m = wire.ConnectorMessage().source
        m.attempt.CopyFrom(s.key.message())
        m.failure.code, m.failure.detail = e.code, e.detail
        self._front.tell(source=m)

    # Transferd's reader.

    def event(self, e: Event) -> None:
        with self._lock:
            s = self._by_key.get(e.key)  # type: ignore[arg-type]
            if s is None:
                return
            if not s.over:
                s.over = True
                m = wire.ConnectorMessage().over
                m.attempt.CopyFrom(s.key.message())
                m.source, m.cause = True, e.cause
                self._front.tell(over=m)
            if e.kind == DRAINED:
                s.drained = True
                if s.held:
                    self._end(s)


def _spec(s: Source, form: Form) -> Any:
    m = wire.EngineMessage().open_source
    m.plan.CopyFrom(s.plan.plan)
    m.shape.CopyFrom(form.shape(s.prompt))
    m.offsets.extend(form.offsets(s.blocks))
    m.blocks.extend(sorted({b for ids in s.blocks for b in ids}))
    m.lease_ms = s.plan.lease_ms
    return m


def _notice(s: Source, capability: bytes) -> Any:
    m = wire.ConnectorMessage().source
    m.attempt.CopyFrom(s.key.message())
    m.capability, m.prompt_tokens, m.cached_tokens = capability, s.prompt, s.cached
    return m
