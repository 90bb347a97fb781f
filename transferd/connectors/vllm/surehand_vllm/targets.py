"""D's side of attempts: blocks that vLLM allocated are the target that transferd writes.

    vLLM's scheduler        this                        transferd
    request parked     -->  open target            -->  opened
                            report: received       <--  committed
                            report: failed         <--  closed, then drained
    request finished   -->  finish target          -->  over, drained
    blocks free        <--  freed                  -->

vLLM keeps the blocks of a parked request until it is reported as received, and
those of a finished one until it is reported as sent: both are said only after
transferd told that nothing can write them any more.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from . import wire
from .daemon import COMMITTED, DRAINED, Daemon, Event
from .duties import Duties
from .front import Front
from .layout import Form
from .steps import Steps
from .wire import Key, Refusal


@dataclass
class Target:
    key: Key
    plan: Any
    request: str
    prompt: int = 0
    cached: int = 0
    blocks: tuple[list[int], ...] = ()
    slot: int = -1
    failure: Refusal | None = None
    # What vLLM was told and told us.
    parked: bool = False  # it has blocks and waits for us
    reported: bool = False  # as received, in a step that was built
    delivered: bool = False  # and vLLM has seen it
    finished: bool = False
    owed: bool = False  # its blocks are free once it is reported as sent
    # What transferd told us.
    held: bool = False  # it may write the memory
    committed: bool = False
    over: bool = False
    drained: bool = False
    told: bool = False  # the front knows of it


class Targets:
    """Called by the scheduler's thread, by transferd's reader and by the duties' thread."""

    def __init__(self, daemon: Daemon, duties: Duties, steps: Steps, front: Front, form: Form, log: logging.Logger) -> None:
        self._daemon, self._duties, self._steps, self._front = daemon, duties, steps, front
        self._form, self._log = form, log
        self._lock = threading.RLock()
        self._by_request: dict[str, Target] = {}
        self._by_key: dict[Key, Target] = {}
        self._slots = list(range(daemon.flags.slots - 1, -1, -1))

    def count(self) -> int:
        with self._lock:
            return len(self._by_request)

    def parked(self) -> int:
        with self._lock:
            return sum(1 for t in self._by_request.values() if t.parked and not t.reported)

    # The scheduler's thread.

    def new(self, request: str, key: Key | None, plan: Any, failure: Refusal | None) -> None:
        """A request came. One with a failure is parked all the same, and then fails: it must not run."""
        with self._lock:
            t = Target(key or Key("", 0, 0), plan, request, failure=failure)
            if failure is None and key in self._by_key:
                t.failure = Refusal("conflict", f"{key} has another request here")
            elif failure is None:
                self._by_key[t.key] = t
            self._by_request[request] = t

    def is_waiting(self, request: str) -> bool | None:
        """Whether its prompt is still to come; None: not one of ours."""
        with self._lock:
            t = self._by_request.get(request)
            return None if t is None else not t.reported

    def allocated(self, request: str, prompt: int, external: int, blocks: tuple[list[int], ...]) -> None:
        with self._lock:
            t = self._by_request.get(request)
            if t is None:
                return
            if t.parked:
                return  # again, after the load or a preemption
            t.prompt = prompt
            if external <= 0:
                t.failure = t.failure or Refusal("engine", "the engine would compute the prompt itself")
                self._tell_failure(t)
                return
            t.parked, t.cached = True, prompt - external
            n = self._form.blocks_for(prompt)
            t.blocks = tuple(ids[:n] for ids in blocks)
        self._duties.put(lambda: self._open(t))

    def preempted(self, request: str) -> None:
        """vLLM took the blocks of a committed target back; D will compute its prompt."""
        with self._lock:
            t = self._by_request.get(request)
            if t is not None and t.delivered:
                m = wire.ConnectorMessage().recomputed
                m.attempt.CopyFrom(t.key.message())
                m.tokens = t.prompt
                self._front.tell(recomputed=m)

    def delivered(self, requests: set[str]) -> None:
        with self._lock:
            for r in requests:
                if r in self._by_request:
                    self._by_request[r].delivered = True

    def finished(self, request: str) -> bool | None:
        """Whether vLLM keeps the blocks until told; None: not one of ours."""
        with self._lock:
            t = self._by_request.get(request)
            if t is None:
                return None
            t.finished = True
            if not t.parked:  # nothing was allocated
                t.failure = t.failure or Refusal("cancelled", "the request ended before it had blocks")
                self._tell_failure(t)
                self._forget(t)
                return False
            if not t.reported:  # vLLM keeps them anyway, until it is reported as received
                if t.held:
                    self._end(t)
                return False
            if not t.held:  # it failed, and vLLM ended it
                self._forget(t)
                return False
            t.owed = t.delivered  # else vLLM frees them when it sees the report: after a commit nobody writes them
            self._end(t)
            return t.owed

    # Duties.

    def _open(self, t: Target) -> None:
        with self._lock:
            if t.finished or t.failure is not None:
                t.failure = t.failure or Refusal("cancelled", "the request ended before its target was open")
                self._tell_failure(t)
                self._report(t)
                return
            if t.slot < 0 and not self._slots:
                t.failure = Refusal("capacity", "no flag slot is free")
                self._tell_failure(t)
                self._report(t)
                return
            t.slot = self._slots.pop() if t.slot < 0 else t.slot
            m = _spec(t, self._form)
        try:
            opened = self._daemon.open_target(t.key, m)
        except Refusal as e:
            self._refused(t, e)
            return
        with self._lock:
            t.held = True
            self._front.tell(target=_notice(t, opened.token))
            t.told = True
            if t.finished:
                self._end(t)
            elif t.drained:
                self._settle(t)

    def _refused(self, t: Target, e: Refusal) -> None:
        with self._lock:
            t.failure = t.failure or e
            self._tell_failure(t)
            if e.code == "unavailable":  # it may be open: the drained event tells
                t.held = True
                self._end(t)
                if t.drained:
                    self._settle(t)
                return
            self._release_slot(t)
            self._report(t)

    def _end(self, t: Target) -> None:
        """With the lock: sees to it that transferd lets the memory go."""
        if t.drained:
            self._settle(t)
        elif not t.over:
            self._duties.put(lambda: self._finish(t))

    def _finish(self, t: Target) -> None:
        if t.over or t.drained:
            return
        try:
            self._daemon.finish_target(t.key)
        except Refusal as e:
            if e.code not in ("closed", "aborted"):  # a repeat, or the daemon was first
                if e.code == "not_ready":
                    return  # another life of the daemon, whose events tell
                raise

    def _settle(self, t: Target) -> None:
        """With the lock: what is drained and not in use any more is freed."""
        if t.finished or not t.committed or t.failure is not None:
            self._duties.put(lambda: self._free(t))

    def _free(self, t: Target) -> None:
        with self._lock:
            if not t.held:
                return
        self._daemon.freed(t.key, False)
        with self._lock:
            if not t.held:
                return
            t.held = False
            self._release_slot(t)
            if not t.reported:
                self._report(t)
            elif t.owed:
                self._steps.send(t.request)
            freed = wire.ConnectorMessage().freed
            freed.attempt.CopyFrom(t.key.message())
            self._front.tell(freed=freed)
            if t.finished:
                self._forget(t)

    def _report(self, t: Target) -> None:
        """With the lock: vLLM may go on with it, or fails it; a finished one's blocks are free."""
        if t.reported:
            return
        t.reported = True
        self._steps.receive(t.request, failed=t.failure is not None)
        if t.finished and not t.held:
            self._forget(t)

    def _release_slot(self, t: Target) -> None:
        if t.slot >= 0:
            self._slots.append(t.slot)
            t.slot = -1

    def _forget(self, t: Target) -> None:
        self._by_request.pop(t.request, None)
        if self._by_key.get(t.key) is t:
            del self._by_key[t.key]

    def _tell_failure(self, t: Target) -> None:
        if t.told or t.failure is None or not t.key.handoff:
            return
        t.told = True
        m = wire.ConnectorMessage().target
        m.attempt.CopyFrom(t.key.message())
        m.failure.code, m.failure.detail = t.failure.code, t.failure.detail
        self._front.tell(target=m)

    # Transferd's reader.

    def event(self, e: Event) -> None:
        with self._lock:
            t = self._by_key.get(e.key)  # type: ignore[arg-type]
            if t is None:
                return
            if e.kind == COMMITTED:
                self._committed(t)
            elif e.kind == DRAINED:
                self._over(t, e)
                t.drained = True
                if t.held:
                    self._settle(t)
            else:
                self._over(t, e)

    def _committed(self, t: Target) -> None:
        """The event says committed; the flag page must as well."""
        if t.finished:
            return
        if not self._daemon.flags.is_visible(t.slot, t.key.epoch, t.key.nonce):
            self._log.error("%s is committed and not visible", t.key)
            t.failure = Refusal("internal", "committed and not visible")
            self._end(t)
            return
        t.committed = True
        m = wire.ConnectorMessage().committed
        m.attempt.CopyFrom(t.key.message())
        self._front.tell(committed=m)
        self._report(t)

    def _over(self, t: Target, e: Event) -> None:
        if t.over:
            return
        t.over = True
        if not t.committed:
            t.failure = t.failure or Refusal(e.cause or "closed", f"{t.key} is closed")
        if t.finished:
            return  # we ended it, because its request ended: the answer tells how
        m = wire.ConnectorMessage().over
        m.attempt.CopyFrom(t.key.message())
        m.cause = e.cause
        self._front.tell(over=m)


def _spec(t: Target, form: Form) -> Any:
    m = wire.EngineMessage().open_target
    m.plan.CopyFrom(t.plan.plan)
    m.shape.CopyFrom(form.shape(t.prompt))
    m.offsets.extend(form.offsets(t.blocks))
    m.held.extend(form.held(t.cached // form.block_tokens, t.blocks))
    m.flag_slot, m.lease_ms = t.slot, t.plan.lease_ms
    return m


def _notice(t: Target, token: Any) -> Any:
    m = wire.ConnectorMessage().target
    m.attempt.CopyFrom(t.key.message())
    m.token.CopyFrom(token)
    m.prompt_tokens, m.cached_tokens, m.blocks = t.prompt, t.cached, sum(map(len, t.blocks))
    return m
