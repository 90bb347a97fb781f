"""How the KV cache lies, as contracts/layout writes it down, and what of it is where."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from .wire import LayoutDescription, Refusal, Shape

_DTYPES = ("float32", "float16", "bfloat16", "float8_e4m3", "float8_e5m2", "int8")


@dataclass(frozen=True)
class Cache:
    """The paged KV of layers of one shape. K and V of a block lie together."""

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    dtype: str
    order: str  # hnd or nhd
    interior: str  # what else decides the place of a byte: engine, version, instruction set


def _string(s: str) -> bytes:
    b = s.encode()
    n, out = len(b), bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n]) + b


def fingerprint(block_tokens: int, caches: list[Cache]) -> bytes:
    """The SHA-256 of the layout's canonical encoding, equal to that of contracts/layout."""
    fields = [("block tokens", str(block_tokens)), ("tensor parallelism", "1")]
    for i, c in enumerate(caches):
        if c.dtype not in _DTYPES:
            raise Refusal("mismatch", f"KV of type {c.dtype}")
        of = f" of cache {i}"
        fields += [
            ("name" + of, c.name), ("dtype" + of, c.dtype), ("layers" + of, str(c.layers)),
            ("kv heads" + of, str(c.kv_heads)), ("head dimension" + of, str(c.head_dim)),
            ("packing" + of, "packed"), ("order" + of, c.order), ("interior" + of, c.interior),
            ("window" + of, "0"),
        ]
    text = b"surehand layout v1\x00" + b"".join(_string(n) + _string(v) for n, v in fields)
    return hashlib.sha256(text).digest()


def description(block_tokens: int, caches: list[Cache]) -> Any:
    """What the fingerprint stands for. With one rank every head is that rank's."""
    m = LayoutDescription(block_tokens=block_tokens, parallel=1, heads=[c.kv_heads for c in caches])
    for c in caches:
        m.caches.add(name=c.name, layers=c.layers, kv_heads=c.kv_heads, head_dim=c.head_dim, dtype=c.dtype, packing="packed", order=c.order, interior=c.interior)
    return m


@dataclass(frozen=True)
class Layer:
    """Where one layer's blocks lie in the segment."""

    offset: int
    stride: int
    bytes: int

    def at(self, block: int) -> int:
        return self.offset + block * self.stride


@dataclass(frozen=True)
class Form:
    """What all handoffs of this engine have in common: one entry a KV cache group."""

    revision: str
    layout: bytes
    block_tokens: int
    names: tuple[str, ...]
    layers: tuple[tuple[Layer, ...], ...]
    modules: tuple[str, ...] = ()  # vLLM's names of all layers, in their order
    described: Any = None  # what layout stands for

    @property
    def depth(self) -> int:
        """Layers of all groups."""
        return sum(map(len, self.layers))

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def shape(self, tokens: int) -> Any:
        shape = Shape(revision=self.revision, layout=self.layout, tokens=tokens)
        for name, layers in zip(self.names, self.layers):
            shape.groups.add(name=name, layers=len(layers), blocks=self.blocks_for(tokens), block_bytes=layers[0].bytes)
        return shape

    def offsets(self, blocks: tuple[list[int], ...]) -> list[int]:
        """Of each piece, in piece order: groups, then layers, then blocks."""
        return [layer.at(b) for layers, ids in zip(self.layers, blocks) for layer in layers for b in ids]

    def lengths(self, blocks: tuple[list[int], ...]) -> list[int]:
        return [layer.bytes for layers, ids in zip(self.layers, blocks) for layer in layers for _ in ids]

    def stretch(self, layer: int, blocks: tuple[list[int], ...]) -> range:
        """The pieces of one layer, counted over all groups."""
        base = 0
        for layers, ids in zip(self.layers, blocks):
            if layer < len(layers):
                return range(base + layer * len(ids), base + (layer + 1) * len(ids))
            layer, base = layer - len(layers), base + len(layers) * len(ids)
        raise IndexError(layer)

    def held(self, count: int, blocks: tuple[list[int], ...]) -> list[int]:
        """The pieces of the first count blocks of every layer."""
        out: list[int] = []
        base = 0
        for layers, ids in zip(self.layers, blocks):
            for _ in layers:
                out += range(base, base + count)
                base += len(ids)
        return out


def order_of(strides: tuple[int, ...], heads: int, block_tokens: int, shape: tuple[int, ...]) -> str:
    """Whether heads or tokens come first inside a block; refuses what is neither."""
    if len(shape) == 4 and shape[1] == heads and shape[2] == block_tokens and strides[1] > strides[2]:
        return "hnd"
    if len(shape) == 4 and shape[1] == block_tokens and shape[2] == heads and strides[1] > strides[2]:
        return "nhd"
    raise Refusal("mismatch", f"a KV cache of shape {shape} and strides {strides}")
