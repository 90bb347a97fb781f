"""Messages of the engine socket and the connector socket, and their frames.

The schema is generated from the contracts; nothing of it is repeated here. A
frame is a little-endian u32 length and the message. Descriptors travel beside
the first byte of the frame that names them.
"""

from __future__ import annotations

import base64
import socket
import struct
from dataclasses import dataclass
from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from . import constants

Message = Any  # of the schema, which is read when this runs

_LENGTH = struct.Struct("<I")
_pool = descriptor_pool.DescriptorPool()


def _load() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    files.ParseFromString(resources.files(__package__).joinpath("schema.binpb").read_bytes())
    for file in files.file:
        _pool.Add(file)


_load()


def message(name: str) -> Any:
    """The class of a message, by its full name."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


EngineMessage = message("surehand.transfer.v1.EngineMessage")
DaemonMessage = message("surehand.transfer.v1.DaemonMessage")
Attempt = message("surehand.transfer.v1.Attempt")
Shape = message("surehand.transfer.v1.Shape")
LayoutDescription = message("surehand.transfer.v1.LayoutDescription")
RequestPlan = message("surehand.engine.v1.RequestPlan")
ConnectorMessage = message("surehand.engine.v1.ConnectorMessage")
FrontMessage = message("surehand.engine.v1.FrontMessage")

ROLE_PREFILL = 1
ROLE_DECODE = 2
TARGET_COMMITTED = 6
TARGET_CLOSED = 7
TARGET_ABORTED = 8
SOURCE_CLOSED = 3


class Refusal(Exception):
    """A typed refusal: its code is a name of contracts/handoff."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code if code in constants.ADVICE else "internal"
        self.detail = detail

    @property
    def is_final(self) -> bool:
        return constants.ADVICE[self.code] in ("give-up", "operator")


def unavailable(detail: str) -> Refusal:
    """Nothing is known of what was asked."""
    return Refusal("unavailable", detail)


@dataclass(frozen=True)
class Key:
    """One attempt, as a key."""

    handoff: str
    epoch: int
    nonce: int

    @staticmethod
    def of(m: Message) -> "Key":
        return Key(m.handoff, m.epoch, m.nonce)

    def message(self) -> Message:
        return Attempt(handoff=self.handoff, epoch=self.epoch, nonce=self.nonce)

    def __str__(self) -> str:
        return f"{self.handoff}@{self.epoch}"


def request_plan(params: dict[str, Any] | None) -> Message | None:
    """The plan beside a request's body; None when the request has none.

    Raises Refusal for one that cannot be read: such a request must not run.
    """
    text = (params or {}).get("surehand")
    if text is None:
        return None
    plan = RequestPlan()
    try:
        plan.ParseFromString(base64.b64decode(text, validate=True))
    except (ValueError, TypeError, DecodeError) as e:
        raise Refusal("invalid", f"the request's plan: {type(e).__name__}") from e
    a = plan.plan.attempt
    if not a.handoff or len(a.handoff) > constants.MAX_ID_BYTES or a.epoch == 0 or a.nonce == 0:
        raise Refusal("invalid", "the request's plan names no attempt")
    if plan.role not in (ROLE_PREFILL, ROLE_DECODE):
        raise Refusal("invalid", f"role {plan.role} of the request's plan")
    if len(plan.tenant) not in (0, 32):
        raise Refusal("invalid", f"tenant of {len(plan.tenant)} bytes")
    if not constants.LEASE_MIN_MS <= plan.lease_ms <= constants.LEASE_MAX_MS:
        raise Refusal("invalid", f"lease of {plan.lease_ms} ms")
    return plan


def encode(m: Message) -> bytes:
    body: bytes = m.SerializeToString(deterministic=True)
    if len(body) > constants.MAX_FRAME_BYTES:
        raise Refusal("too_large", f"frame of {len(body)} bytes")
    return _LENGTH.pack(len(body)) + body


def send(s: socket.socket, m: Message, fds: list[int] | None = None) -> None:
    frame = encode(m)
    if fds:
        n = socket.send_fds(s, [frame], fds)
        frame = frame[n:]
    s.sendall(frame)


def receive(s: socket.socket, kind: Any) -> Message:
    """One message; raises Refusal at the stream's end or for what is no frame."""
    (length,) = _LENGTH.unpack(_exactly(s, _LENGTH.size))
    if length > constants.MAX_FRAME_BYTES:
        raise Refusal("too_large", f"frame of {length} bytes")
    m = kind()
    try:
        m.ParseFromString(_exactly(s, length))
    except DecodeError as e:
        raise Refusal("invalid", "a frame that is no message") from e
    return m


def _exactly(s: socket.socket, n: int) -> bytes:
    parts = []
    while n > 0:
        try:
            b = s.recv(min(n, 1 << 18))  # a buffer grows with what came, not with what was claimed
        except OSError as e:
            raise unavailable(f"the connection broke: {e.strerror}") from e
        if not b:
            raise unavailable("the connection ended")
        parts.append(b)
        n -= len(b)
    return b"".join(parts)
