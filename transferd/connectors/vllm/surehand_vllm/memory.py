"""Shared memory: sealed memfds, the flag page, and vLLM's KV cache in one."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from typing import Any

from . import constants

_F_ADD_SEALS = 1033
_SEAL_SHRINK_AND_GROW = 0x2 | 0x4
_LEAST_CACHE = 1 << 20  # bytes; smaller allocations are not the KV cache


def memfd(name: str, size: int) -> int:
    """A memfd of a size that nobody can change any more."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, _F_ADD_SEALS, _SEAL_SHRINK_AND_GROW)
    return fd


class FlagPage:
    """Where the daemon shows which targets are committed; read only here."""

    _HEAD = struct.Struct("<IIQ")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.fd = memfd("surehand-flags", slots * constants.SLOT_BYTES)
        self._map = mmap.mmap(self.fd, slots * constants.SLOT_BYTES)

    def is_visible(self, slot: int, epoch: int, nonce: int) -> bool:
        return is_visible(memoryview(self._map)[slot * constants.SLOT_BYTES :], epoch, nonce)

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)


def is_visible(slot: memoryview | bytes, epoch: int, nonce: int) -> bool:
    """Whether a slot shows this attempt as committed: its first word is written last."""
    return FlagPage._HEAD.unpack_from(slot, 0) == (constants.SLOT_VISIBLE, epoch, nonce)


class CacheMemory:
    """The memfd that vLLM's KV cache is put into. Worker's side.

    vLLM takes the memory of all layers by one torch.zeros of int8 inside the
    context that the connector gives it. That one call gets our memory; every
    other goes its way.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.fd = -1
        self.size = 0
        self.address = 0
        self._map: mmap.mmap | None = None

    @contextlib.contextmanager
    def hook(self) -> Iterator[None]:
        import torch

        original = torch.zeros

        def zeros(*args: Any, **kwargs: Any) -> Any:
            size = _plain_int8_size(torch, args, kwargs)
            if size is None or self.fd >= 0:
                return original(*args, **kwargs)
            self.fd, self.size = memfd(self._name, size), size
            self._map = mmap.mmap(self.fd, size, mmap.MAP_SHARED)
            tensor = torch.frombuffer(self._map, dtype=torch.int8)
            self.address = tensor.data_ptr()
            return tensor

        torch.zeros = zeros
        try:
            yield
        finally:
            torch.zeros = original


def _plain_int8_size(torch: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    if len(args) != 1 or kwargs.get("dtype") is not torch.int8:
        return None
    if str(kwargs.get("device", "cpu")) != "cpu" or set(kwargs) - {"dtype", "device"}:
        return None
    size = args[0]
    if isinstance(size, (tuple, list, torch.Size)) and len(size) == 1:
        size = size[0]
    return size if isinstance(size, int) and size >= _LEAST_CACHE else None
