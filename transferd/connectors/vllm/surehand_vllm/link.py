"""One connection that asks and is answered, and is told of events between."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from . import wire

SEND_TIMEOUT = 5.0  # a peer that takes no byte for so long is left
_CREDENTIALS = struct.Struct("3i")


def connect(path: str, timeout: float) -> socket.socket:
    """A stream to a Unix socket whose owner has our own user id."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        s.settimeout(timeout)
        s.connect(path)
        _, uid, _ = _CREDENTIALS.unpack(s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid != os.getuid():
            raise wire.Refusal("denied", f"the peer has user id {uid}, we have {os.getuid()}")
        return s
    except OSError as e:
        s.close()
        raise wire.unavailable(f"connect: {e.strerror}") from e
    except wire.Refusal:
        s.close()
        raise


class Link:
    """The present connection to a daemon. Any thread may ask; one reads."""

    def __init__(self, s: socket.socket) -> None:
        self._socket = s
        self._ids = itertools.count(2)  # 1 was the attach
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending: dict[int, Future[Any]] | None = {}

    def ask(self, m: Any, timeout: float) -> Any:
        reply: Future[Any] = Future()
        with self._lock:
            if self._pending is None:
                raise wire.unavailable("detached from the daemon")
            m.id = next(self._ids)
            self._pending[m.id] = reply
        try:
            self.tell(m)
            answer = reply.result(timeout)
        except TimeoutError as e:
            raise wire.unavailable("no answer in time") from e
        finally:
            with self._lock:
                if self._pending is not None:
                    self._pending.pop(m.id, None)
        if answer.HasField("failure"):
            raise wire.Refusal(answer.failure.code, answer.failure.detail)
        return answer

    def tell(self, m: Any) -> None:
        """Sends what has no answer. After an error the stream is broken."""
        with self._writing:
            try:
                wire.send(self._socket, m)
            except OSError as e:
                self.break_()
                raise wire.unavailable(f"not sent: {e}") from e

    def read(self, on_event: Callable[[Any], None]) -> wire.Refusal:
        """Hands replies to who asked, and events on; returns why it ended."""
        while True:
            try:
                m = wire.receive(self._socket, wire.DaemonMessage)
            except wire.Refusal as e:
                return e
            if m.id == 0:
                on_event(m)
                continue
            with self._lock:
                reply = (self._pending or {}).pop(m.id, None)
            if reply is not None:
                reply.set_result(m)

    def break_(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # broken already

    def close(self) -> None:
        """Nothing is known any more of what was asked and not answered."""
        with self._lock:
            pending, self._pending = self._pending or {}, None
        for reply in pending.values():
            reply.set_exception(wire.unavailable("the daemon left before it answered"))
        self._socket.close()
