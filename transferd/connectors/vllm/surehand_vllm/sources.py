"""P's side of attempts: the blocks of a finished prefill are the source that D reads.

    vLLM's scheduler        this                              transferd
    last chunk begins  -->  open, announce what is there -->  grant
    (worker: a layer   -->  announce it)                      (the front hears: opened)
    request finished   -->  announce the rest, seal           (the front hears: sealed)
                            freed, report: sent          <--  closed, then drained

vLLM allocates blocks chunk by chunk, so all of a prompt's are known when its last
chunk is scheduled: that is when it can be opened. A short prompt, which would gain
nothing by it, is opened when its request has finished. vLLM keeps the blocks of a
finished request until it is reported as sent. A prefill that is preempted before
its last chunk has nothing open: it is computed again. One that is preempted in
between is closed, and the engine goes on only once it is drained.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import google_crc32c

from . import wire
from .daemon import DRAINED, Daemon, Event
from .duties import Duties
from .front import Front
from .layout import Form
from .steps import Steps
from .wire import Key, Refusal

_LAST_STEP = 1 << 31
_WATCHED_STEPS = 8  # that the worker's words may lag behind
_TELL_EVERY = 1.0  # seconds, of an engine that waits for a drain


@dataclass
class Source:
    key: Key
    plan: Any
    request: str
    prompt: int = 0
    cached: int = 0
    blocks: tuple[list[int], ...] = ()
    running: Any = None  # vLLM's request, until its blocks are known
    early: bool = False  # opened, or about to be, while it is computed
    announced: set[int] = field(default_factory=set)  # layers of which all is
    finished: bool = False  # computed: vLLM keeps the blocks until told
    held: bool = False  # transferd may read the memory
    over: bool = False
    drained: bool = False
    told: bool = False  # the front, of its end
    capability: bytes = b""
    drop: str = ""  # why nobody wants it any more
    gone: threading.Event = field(default_factory=threading.Event)  # nobody reads the blocks any more


class Sources:
    """Called by the scheduler's thread, by transferd's and the front's readers and by the duties' thread."""

    def __init__(self, daemon: Daemon, duties: Duties, steps: Steps, front: Front, form: Form, segment: memoryview, log: logging.Logger,
                 serial_below: int = 0) -> None:
        self._daemon, self._duties, self._steps, self._front = daemon, duties, steps, front
        self._form, self._segment, self._log = form, segment, log
        self._lock = threading.RLock()
        self._by_request: dict[str, Source] = {}
        self._by_key: dict[Key, Source] = {}
        self._serial_below = serial_below
        self._growing: dict[str, Source] = {}  # of those to be opened early
        self._step = 0
        self._watched: dict[int, list[Source]] = {}

    def count(self) -> int:
        with self._lock:
            return sum(1 for s in self._by_request.values() if s.finished)

    # The scheduler's thread.

    def new(self, request: str, key: Key, plan: Any, running: Any = None) -> None:
        with self._lock:
            s = Source(key, plan, request, running=running)
            if key in self._by_key:
                self._fail(s, Refusal("conflict", f"{key} has another request here"))
                return
            self._by_request[request] = self._by_key[key] = s
            if running is not None and running.num_prompt_tokens >= self._serial_below:
                self._growing[request] = s

    def scheduled(self, tokens: dict[str, int], table: Callable[[str], tuple[list[int], ...]]) -> int:
        """Opens the sources whose prompt the next step computes to its end; the step's number, if its layers are of interest."""
        if not self._growing:
            return 0
        with self._lock:
            last = [s for r, n in tokens.items() if (s := self._growing.get(r)) is not None and s.running.num_computed_tokens + n >= s.running.num_prompt_tokens]
            if not last:
                return 0
            self._step = self._step % _LAST_STEP + 1
            for s in last:
                del self._growing[s.request]
                s.early, s.prompt = True, s.running.num_prompt_tokens
                n = self._form.blocks_for(s.prompt)
                s.blocks = tuple(ids[:n] for ids in table(s.request))
                s.running = None
                self._duties.put(partial(self._open, s))
            self._watched[self._step] = last
            self._watched.pop(self._step - _WATCHED_STEPS, None)
            return self._step

    def preempted(self, request: str) -> None:
        """vLLM took the blocks back. The next step may write them, so it waits until nobody reads them."""
        with self._lock:
            s = self._by_request.get(request)
            if s is None or not s.early:
                return
            self._log.warning("%s was preempted as it was being read", s.key)
            s.drop = s.drop or "engine"
            self._fail(s, Refusal("engine", "the prefill was preempted in its last step"))
            self._duties.put(lambda: self._abandon(s))
        while not s.gone.wait(_TELL_EVERY):
            self._log.warning("%s is not drained yet: the engine waits", s.key)

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
            if s.early:
                s.finished = True
                if not computed or tuple(ids[:n] for ids in blocks) != s.blocks:
                    self._fail(s, Refusal("cancelled" if not computed else "engine", "the prefill did not end"))
                    s.drop = s.drop or ("cancelled" if not computed else "engine")
                    self._duties.put(lambda: self._abandon(s))
                else:
                    self._duties.put(lambda: self._publish(s))
                return True
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

    def _open(self, s: Source) -> bool:
        """Whether transferd may read it now."""
        with self._lock:
            if s.drop or s.gone.is_set():
                self._abandon(s)
                return False
        try:
            opened = self._daemon.open_source(s.key, _spec(s, self._form))
        except Refusal as e:
            self._refused(s, e)
            return False
        with self._lock:
            s.held, s.capability = True, opened.capability
            if s.early:
                m = wire.ConnectorMessage().opened
                m.attempt.CopyFrom(s.key.message())
                m.capability, m.prompt_tokens = s.capability, s.prompt
                self._front.tell(opened=m)
        return True

    def wrote(self, step: int, layer: int) -> None:
        """The worker's word, by the thread that reads them: a layer is written.

        All of it, and not before: vLLM schedules a step while an earlier one is
        computed, and lets a request share blocks that another writes in the same step.
        """
        with self._lock:
            for s in self._watched.get(step, ()):
                self._duties.put(partial(self._layer, s, layer))

    def _layer(self, s: Source, layer: int) -> None:
        if s.held and not s.over and not s.drop:
            self._tell(s, lambda: self._announce(s, {layer}))

    def _announce(self, s: Source, layers: set[int]) -> None:
        """Of those layers what was not announced before."""
        offsets, lengths = self._form.offsets(s.blocks), self._form.lengths(s.blocks)
        pieces = [p for layer in sorted(layers - s.announced) for p in self._form.stretch(layer, s.blocks)]
        s.announced |= layers
        if not pieces:
            return
        digests = [google_crc32c.value(bytes(self._segment[offsets[p] : offsets[p] + lengths[p]])) for p in pieces]
        self._daemon.announce(s.key, pieces, digests)

    def _tell(self, s: Source, what: Callable[[], object]) -> bool:
        """Whether transferd took it; a source that it did not take ends."""
        try:
            what()
        except Refusal as e:
            with self._lock:
                self._fail(s, e)
                s.drop = s.drop or e.code
                self._end(s)
            return False
        return True

    def _publish(self, s: Source) -> None:
        with self._lock:
            if s.gone.is_set():
                return
            if s.drop:
                self._fail(s, Refusal(s.drop, "nobody wants the prefill any more"))
                self._abandon(s)
                return
        if not s.held and not self._open(s):
            return

        def rest() -> None:
            self._announce(s, set(range(self._form.depth)))
            self._daemon.seal(s.key)

        if not self._tell(s, rest):
            return
        with self._lock:
            s.told = True
            self._front.tell(source=_notice(s, s.capability))
            if s.drop or s.drained:
                self._end(s)

    def _abandon(self, s: Source) -> None:
        """Nobody will read it; what transferd holds of it is closed."""
        with self._lock:
            if s.held:
                self._end(s)
            elif not s.gone.is_set():
                self._return(s)

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
        """With the lock: nobody reads the blocks any more; vLLM may have them, or has them still."""
        if s.finished:
            self._steps.send(s.request)
        self._forget(s)
        freed = wire.ConnectorMessage().freed
        freed.attempt.CopyFrom(s.key.message())
        freed.source = True
        self._front.tell(freed=freed)

    def _forget(self, s: Source) -> None:
        s.gone.set()
        self._growing.pop(s.request, None)
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
    m.lease_ms, m.tenant = s.plan.lease_ms, s.plan.tenant
    return m


def _notice(s: Source, capability: bytes) -> Any:
    m = wire.ConnectorMessage().source
    m.attempt.CopyFrom(s.key.message())
    m.capability, m.prompt_tokens, m.cached_tokens = capability, s.prompt, s.cached
    return m
