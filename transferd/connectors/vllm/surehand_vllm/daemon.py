"""The engine's attachment to the transferd beside it: what transferd/client is in Go.

The daemon may die and come back: it is attached again with the same memory and
flag page. Targets that were committed stay committed; everything else of the old
daemon is over, and drained, because the only process that touched the memory is
dead. Events say so one by one.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from . import constants, wire
from .layout import Form
from .link import SEND_TIMEOUT, Link, connect
from .memory import FlagPage
from .wire import Key, Refusal

ATTACH_TIMEOUT = 10.0  # of one try; the daemon may wait for drains
ANSWER_TIMEOUT = 10.0
_BACKOFF_FIRST, _BACKOFF_LAST = 0.005, 0.1

COMMITTED, CLOSED, ABORTED, DRAINED = "committed", "closed", "aborted", "drained"
ATTACHED, DETACHED = "attached", "detached"


@dataclass(frozen=True)
class Event:
    kind: str
    key: Key | None = None
    source: bool = False
    cause: str = ""


@dataclass(frozen=True)
class Identity:
    """What the present life of the daemon says of itself."""

    node: str
    incarnation: int
    peer: str
    protocol: int = 0


@dataclass
class _Track:
    """What was told of an attempt, so that each event comes once although the daemon may die."""

    committed: bool = False
    over: bool = False
    drained: bool = False


class Daemon:
    """Every method may be called by any thread but that of on_event, which must not ask."""

    def __init__(self, path: str, attach: Any, fds: list[int], flags: FlagPage, on_event: Callable[[Event], None], log: logging.Logger) -> None:
        self._path, self._attach, self._fds, self.flags = path, attach, fds, flags
        self._on_event, self._log = on_event, log
        self._lock = threading.Lock()
        self._tracks: dict[tuple[Key, bool], _Track] = {}
        self._link: Link | None = None
        self._closing = threading.Event()
        self.attached = threading.Event()
        self.identity: Identity | None = None
        self._thread = threading.Thread(target=self._run, name="surehand-transferd", daemon=True)

    def start(self, timeout: float) -> None:
        """Attaches, and raises when that was refused or took too long."""
        self._refused: Refusal | None = None
        self._thread.start()
        if not self.attached.wait(timeout) or self._refused is not None:
            raise self._refused or wire.unavailable(f"no transferd at {self._path} within {timeout} s")

    def close(self) -> None:
        self._closing.set()
        with self._lock:
            link = self._link
        if link is not None:
            link.break_()
        if self._thread.is_alive():
            self._thread.join()

    # What an engine asks for. An open that raised anything but `unavailable`
    # never held the memory; after `unavailable` the drained event tells.

    def open_target(self, key: Key, m: Any) -> Any:
        return self._open(key, False, wire.EngineMessage(open_target=m)).target_opened

    def open_source(self, key: Key, m: Any) -> Any:
        return self._open(key, True, wire.EngineMessage(open_source=m)).source_opened

    def _open(self, key: Key, source: bool, m: Any) -> Any:
        with self._lock:
            known = (key, source) in self._tracks
            self._tracks.setdefault((key, source), _Track())
        try:
            return self._ask(m)
        except Refusal as e:
            if not known and e.code != "unavailable":
                self._forget(key, source)
            raise

    def announce(self, key: Key, pieces: Iterable[int], digests: Iterable[int]) -> None:
        """Has no answer: what went wrong with it is told by the seal."""
        m = wire.EngineMessage()
        m.announce.attempt.CopyFrom(key.message())
        m.announce.pieces.extend(pieces)
        m.announce.digests.extend(digests)
        self._present().tell(m)

    def seal(self, key: Key) -> None:
        m = wire.EngineMessage()
        m.seal.attempt.CopyFrom(key.message())
        self._ask(m)

    def close_source(self, key: Key, code: str) -> None:
        m = wire.EngineMessage()
        m.close_source.attempt.CopyFrom(key.message())
        m.close_source.code = code
        self._ask(m)

    def finish_target(self, key: Key) -> None:
        m = wire.EngineMessage()
        m.finish_target.attempt.CopyFrom(key.message())
        self._ask(m)

    def freed(self, key: Key, source: bool) -> None:
        """For an attempt of a daemon that is dead there is nothing to say."""
        with self._lock:
            if (key, source) not in self._tracks:
                return
        m = wire.EngineMessage()
        m.freed.attempt.CopyFrom(key.message())
        m.freed.source = source
        self._ask(m)
        self._forget(key, source)

    def _forget(self, key: Key, source: bool) -> None:
        with self._lock:
            self._tracks.pop((key, source), None)

    def _present(self) -> Link:
        with self._lock:
            if self._link is None:
                raise wire.unavailable("detached from the daemon")
            return self._link

    def _ask(self, m: Any) -> Any:
        return self._present().ask(m, ANSWER_TIMEOUT)

    # The connection's own thread.

    def _run(self) -> None:
        pause, first = _BACKOFF_FIRST, True
        while not self._closing.is_set():
            try:
                link, attached = self._connect()
            except Refusal as e:
                if first and e.is_final:
                    self._refused = e
                    self.attached.set()
                    return
                self._closing.wait(pause)
                pause = min(2 * pause, _BACKOFF_LAST)
                continue
            pause = _BACKOFF_FIRST
            events = self._adopt(link, attached)
            self.attached.set()
            for event in [Event(ATTACHED), *events]:
                self._on_event(event)
            first = False
            why = link.read(self._told)
            with self._lock:
                self._link = None
            self.attached.clear()
            link.close()
            if not self._closing.is_set():
                self._log.warning("transferd is gone: %s", why)
                self._on_event(Event(DETACHED))

    def _connect(self) -> tuple[Link, Any]:
        s = connect(self._path, ATTACH_TIMEOUT)
        try:
            hello = wire.EngineMessage(id=1, attach=self._attach)
            wire.send(s, hello, self._fds)
            reply = wire.receive(s, wire.DaemonMessage)
            if reply.HasField("failure"):
                raise Refusal(reply.failure.code, reply.failure.detail)
            if not reply.HasField("attached"):
                raise wire.unavailable("the daemon did not attach")
            s.settimeout(None)  # a read waits for ever, a write does not
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SEND_TIMEOUT), 0))
            return Link(s), reply.attached
        except OSError as e:
            s.close()
            raise wire.unavailable(f"attach: {e}") from e
        except Refusal:
            s.close()
            raise

    def _adopt(self, link: Link, m: Any) -> list[Event]:
        """Whatever was open and is not adopted is over and drained."""
        kept = {Key.of(a) for a in m.adopted}
        events: list[Event] = []
        with self._lock:
            same = self.identity is not None and self.identity.incarnation == m.incarnation
            cause = "engine" if same else "stale_incarnation"
            self.identity = Identity(m.node, m.incarnation, m.peer_address, m.peer_protocol)
            self._link = link
            for (key, source), t in list(self._tracks.items()):
                if not source and key in kept:
                    if not t.committed:  # committed, and the old daemon could not say so any more
                        t.committed = True
                        events.append(Event(COMMITTED, key))
                    continue
                if not t.over:
                    events.append(Event(ABORTED if t.committed else CLOSED, key, source, cause))
                if not t.drained:
                    events.append(Event(DRAINED, key, source, cause))
                del self._tracks[key, source]
        return events

    def _told(self, m: Any) -> None:
        for e in _events(m):
            with self._lock:
                t = self._tracks.get((e.key, e.source))  # type: ignore[arg-type]
                field = {COMMITTED: "committed", DRAINED: "drained"}.get(e.kind, "over")
                if t is not None and getattr(t, field):
                    continue
                if t is not None:
                    setattr(t, field, True)
            self._on_event(e)


def _events(m: Any) -> list[Event]:
    if m.HasField("target_event"):
        t, source = m.target_event, False
        kinds = {wire.TARGET_COMMITTED: COMMITTED, wire.TARGET_CLOSED: CLOSED, wire.TARGET_ABORTED: ABORTED}
    elif m.HasField("source_event"):
        t, source = m.source_event, True
        kinds = {wire.SOURCE_CLOSED: CLOSED}
    else:
        return []
    key, out = Key.of(t.attempt), []
    if t.state in kinds:
        out.append(Event(kinds[t.state], key, source, t.cause))
    if t.drained:
        out.append(Event(DRAINED, key, source, t.cause))
    return out


def attach_message(engine: str, segment_bytes: int, slots: int, form: Form) -> Any:
    m = wire.EngineMessage()
    m.attach.engine, m.attach.segment_bytes, m.attach.flag_slots = engine, segment_bytes, slots
    m.attach.revision, m.attach.layout = form.revision, form.layout
    if form.described is not None:
        m.attach.described.CopyFrom(form.described)
    assert m.ByteSize() <= constants.MAX_FIRST_BYTES
    return m.attach
