"""The worker's side: makes the memory, says where it is, repeats what the scheduler's side decided."""

from __future__ import annotations

import os
import struct
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata, KVConnectorTransferResults

from .layout import Layer
from .memory import CacheMemory
from .steps import Reports
from .wire import Refusal


WORD = struct.Struct("<II")  # number of a step, place of a layer that it has written


@dataclass
class Registered(KVConnectorHandshakeMetadata):
    """Where the worker's KV cache is; the scheduler's side opens it by /proc."""

    pid: int
    fd: int
    words: int  # descriptor of the pipe that says which layers are written
    bytes: int
    layers: dict[str, Layer]
    shape: tuple[int, ...]  # of one layer, and its strides in elements
    strides: tuple[int, ...]
    dtype: str


class Worker:
    def __init__(self, engine: str) -> None:
        self._memory = CacheMemory("surehand-" + engine)
        self._registered: Registered | None = None
        self._places: dict[str, int] = {}
        self._words, self._say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def mem_pool_context(self) -> AbstractContextManager[None]:
        return self._memory.hook()

    def register(self, kv_caches: dict[str, Any]) -> None:
        m = self._memory
        if m.fd < 0:
            raise Refusal("mismatch", "the engine did not allocate its KV cache as one plain buffer")
        layers = {}
        for name, t in kv_caches.items():
            block = t[0]
            if not block.is_contiguous():
                raise Refusal("mismatch", f"{name}: a block is scattered")
            size = t.element_size()
            layer = Layer(t.data_ptr() - m.address, t.stride(0) * size, block.numel() * size)
            if layer.offset < 0 or layer.at(t.shape[0] - 1) + layer.bytes > m.size:
                raise Refusal("mismatch", f"{name} lies outside the shared memory")
            layers[name] = layer
        t = next(iter(kv_caches.values()))
        self._places = {name: i for i, name in enumerate(layers)}
        self._registered = Registered(os.getpid(), m.fd, self._words, m.size, layers, tuple(t.shape), tuple(t.stride()), str(t.dtype).removeprefix("torch."))

    def registered(self) -> Registered | None:
        return self._registered

    def wrote(self, step: int, layer: str) -> None:
        """A layer of a watched step is written. A word that finds the pipe full is not missed: the end announces the rest."""
        try:
            os.write(self._say, WORD.pack(step, self._places[layer]))
        except BlockingIOError:
            pass

    @staticmethod
    def results(reports: Reports) -> KVConnectorTransferResults:
        return KVConnectorTransferResults(
            finished_sending=set(reports.sent), finished_recving=set(reports.received), failed_recving=set(reports.failed))
