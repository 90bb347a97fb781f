"""The word to the engine's front: what becomes of attempts, and what this engine is."""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any

from . import wire
from .link import connect
from .wire import Key, Refusal

_RECONNECT = 0.1
_LOAD_EVERY = 0.25
_MOST_WAITING = 1 << 16  # notices for a front that does not read; past it the link is cut


class Front:
    """Connects to the front's socket, again whenever that breaks.

    A front that came anew knows no attempt of before: notices that were not
    sent are dropped with the connection that they were for.
    """

    def __init__(self, path: str, state: Callable[[], list[Any]], load: Callable[[], Any], on_wake: Callable[[], None],
                 on_drop: Callable[[Key], None], log: logging.Logger) -> None:
        self._path, self._state, self._load, self._log = path, state, load, log
        self._on_wake, self._on_drop = on_wake, on_drop
        self._notices: queue.Queue[Any] = queue.Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._connected = False
        self._thread = threading.Thread(target=self._run, name="surehand-front", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def tell(self, **body: Any) -> None:
        """Never waits: any thread may call it."""
        if not self._connected:
            return
        try:
            self._notices.put_nowait(wire.ConnectorMessage(**body))
        except queue.Full:
            self._connected = False  # the writer sees it and connects anew

    def close(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                s = connect(self._path, 1.0)
            except Refusal as e:
                if e.code == "denied":
                    self._log.error("the front's socket: %s", e)
                self._stop.wait(_RECONNECT)
                continue
            s.settimeout(None)
            self._drain()
            self._connected = True
            reader = threading.Thread(target=self._read, args=(s,), name="surehand-front-reader", daemon=True)
            reader.start()
            try:
                self._write(s)
            except (OSError, Refusal) as e:
                self._log.warning("the front is gone: %s", e)
            self._connected = False
            _hang_up(s)
            reader.join(timeout=5)
            s.close()

    def _drain(self) -> None:
        while not self._notices.empty():
            self._notices.get_nowait()

    def _write(self, s: Any) -> None:
        for m in self._state():
            wire.send(s, m)
        told = None
        while self._connected and not self._stop.is_set():
            try:
                wire.send(s, self._notices.get(timeout=_LOAD_EVERY))
            except queue.Empty:
                pass
            load = self._load()
            if load != told:
                wire.send(s, wire.ConnectorMessage(load=load))
                told = load

    def _read(self, s: Any) -> None:
        try:
            while True:
                m = wire.receive(s, wire.FrontMessage)
                if m.HasField("wake"):
                    self._on_wake()
                elif m.HasField("drop"):
                    self._on_drop(Key.of(m.drop.attempt))
        except Refusal:
            self._connected = False  # the writer sees it at its next word


def _hang_up(s: Any) -> None:
    try:
        s.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # broken already
