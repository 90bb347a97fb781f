"""A transferd that does what a test says, on a real socket with real descriptors."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from pathlib import Path
from typing import Any

from surehand_vllm import wire


class Transferd:
    """Serves one engine at a time; `answers` maps a body's name to what answers it."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.incarnation = 1
        self.adopted: list[Any] = []
        self.asked: queue.Queue[Any] = queue.Queue()
        self.fds: list[int] = []
        self.answers: dict[str, Any] = {}
        self._listener: socket.socket | None = None
        self._engine: socket.socket | None = None
        self.start()

    def start(self) -> None:
        Path(self.path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        threading.Thread(target=self._serve, args=(self._listener,), daemon=True).start()

    def die(self) -> None:
        for s in (self._listener, self._engine):
            if s is not None:
                try:
                    s.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                s.close()
        self._engine = None

    def tell(self, **body: Any) -> None:
        wire.send(self._engine, wire.DaemonMessage(**body))

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                s, _ = listener.accept()
            except OSError:
                return
            self._engine = s
            head, fds, _, _ = socket.recv_fds(s, 4, 4)
            (n,) = struct.unpack("<I", head)
            m = wire.EngineMessage()
            m.ParseFromString(s.recv(n, socket.MSG_WAITALL))
            self.fds = fds
            self.asked.put(m)
            answer = wire.DaemonMessage(id=m.id)
            answer.attached.node, answer.attached.incarnation, answer.attached.peer_address = "td", self.incarnation, "127.0.0.1:1"
            answer.attached.adopted.extend(self.adopted)
            wire.send(s, answer)
            try:
                while True:
                    self._answer(s, wire.receive(s, wire.EngineMessage))
            except (wire.Refusal, OSError):
                pass

    def _answer(self, s: socket.socket, m: Any) -> None:
        self.asked.put(m)
        if m.id == 0:
            return
        answer = self.answers.get(m.WhichOneof("body"), wire.DaemonMessage(done=wire.DaemonMessage().done))
        if answer is None:
            return  # it keeps silent
        out = wire.DaemonMessage()
        out.CopyFrom(answer)
        if out.WhichOneof("body") is None:
            out.done.SetInParent()
        out.id = m.id
        wire.send(s, out)

    def next(self) -> Any:
        return self.asked.get(timeout=5)


def event(key: wire.Key, state: int, drained: bool = False, cause: str = "", source: bool = False) -> dict[str, Any]:
    m = wire.DaemonMessage()
    e = m.source_event if source else m.target_event
    e.attempt.CopyFrom(key.message())
    e.state, e.drained, e.cause = state, drained, cause
    return {"source_event": e} if source else {"target_event": e}
