"""Trains the reference engine's language model and writes its weights file.

    python train.py --rdb Rdata.rdb --minutes 25 --out ../model/weights.bin

The forward pass here must equal the one of package model (model/forward.go)
up to rounding; golden.json, written beside the weights, lets a Go test check
that it does. See README.md for the corpus and its licence.
"""

import argparse
import functools
import hashlib
import json
import os
import struct
import time

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
import jax
import jax.numpy as jnp
import numpy as np

import corpus

# --- Architecture: the same names and values as model/config.go. -----------
LAYERS, RING_LAYER = 4, 1
DIM, HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 128, 8, 2, 16, 512
WINDOW, ROPE_BASE = 128, 1000.0
EOS, BOS, SEP, NONE, VOCAB = 256, 257, 258, 259, 260
GRAMS = (4096, 8192, 8192)  # buckets for the last 2, 3 and 4 tokens
NORM_EPS = 1e-5

# --- Training. --------------------------------------------------------------
LENGTH, BATCH = 256, 16
PEAK_MATRIX, PEAK_OTHER = 0.02, 0.004
WARMUP = 50


def buckets(tokens: np.ndarray) -> np.ndarray:
    """Hash buckets [..., T, len(GRAMS)] of the n-grams that end at each token."""
    prior = [tokens.astype(np.uint32)]
    for back in range(1, len(GRAMS) + 1):
        shifted = np.full_like(prior[0], NONE)
        shifted[..., back:] = prior[0][..., :-back]
        prior.append(shifted)
    out, h = [], prior[0] + np.uint32(1)
    for gram, size in enumerate(GRAMS):
        h = (h ^ (h >> np.uint32(15))) * np.uint32(2654435761) + prior[gram + 1] + np.uint32(1)
        mixed = (h ^ (h >> np.uint32(15))) * np.uint32(0x85EBCA6B)
        out.append((mixed >> np.uint32(16)) % np.uint32(size))
    return np.stack(out, -1).astype(np.int32)


def tensors():
    """Name and shape [rows, columns] of each tensor, in the order of the file."""
    yield "embed", (VOCAB, DIM)
    for i, size in enumerate(GRAMS):
        yield f"gram{i}", (size, DIM)
    for l in range(LAYERS):
        yield f"{l}.q", (HEADS * HEAD_DIM, DIM)
        yield f"{l}.k", (KV_HEADS * HEAD_DIM, DIM)
        yield f"{l}.v", (KV_HEADS * HEAD_DIM, DIM)
        yield f"{l}.o", (DIM, HEADS * HEAD_DIM)
        yield f"{l}.up", (HIDDEN, DIM)
        yield f"{l}.down", (DIM, HIDDEN)
    yield "head", (VOCAB, DIM)


def initial(rng):
    params = {}
    for name, (rows, cols) in tensors():
        if name.startswith("gram") or name.endswith((".o", ".down")):
            scale = 0.0
        else:
            scale = 0.5 if name == "embed" else 0.02 if name == "head" else cols**-0.5
        params[name] = jnp.asarray(rng.normal(0, 1, (rows, cols)) * scale, jnp.float32)
    return params


def norm(x):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + NORM_EPS)


def rope(x, positions):
    half = HEAD_DIM // 2
    angle = positions[:, None] * (ROPE_BASE ** (-jnp.arange(half) / half))[None]
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def attention(params, l, x):
    T = x.shape[1]
    h = norm(x)
    q = (h @ params[f"{l}.q"].T).reshape(-1, T, HEADS, HEAD_DIM)
    k = (h @ params[f"{l}.k"].T).reshape(-1, T, KV_HEADS, HEAD_DIM)
    v = (h @ params[f"{l}.v"].T).reshape(-1, T, KV_HEADS, HEAD_DIM)
    gap = jnp.arange(T)[:, None] - jnp.arange(T)[None]
    visible = gap >= 0
    bias = 0.0
    if l == RING_LAYER:
        q, k = rope(q, jnp.arange(T)), rope(k, jnp.arange(T))
        visible &= gap < WINDOW
    else:
        slopes = 2.0 ** -(jnp.arange(HEADS) + 1.0)
        bias = -slopes[:, None, None] * gap
        bias = bias.reshape(KV_HEADS, HEADS // KV_HEADS, T, T)
    q = q.reshape(-1, T, KV_HEADS, HEADS // KV_HEADS, HEAD_DIM)
    scores = jnp.einsum("btkgd,bskd->bkgts", q, k) * HEAD_DIM**-0.5 + bias
    p = jax.nn.softmax(jnp.where(visible, scores, -1e30), -1)
    mixed = jnp.einsum("bkgts,bskd->btkgd", p, v).reshape(-1, T, HEADS * HEAD_DIM)
    return x + mixed @ params[f"{l}.o"].T


def logits_of(params, tokens, grams):
    x = params["embed"][tokens]
    for i in range(len(GRAMS)):
        x = x + params[f"gram{i}"][grams[..., i]]
    for l in range(LAYERS):
        x = attention(params, l, x)
        h = jnp.maximum(norm(x) @ params[f"{l}.up"].T, 0)
        x = x + (h * h) @ params[f"{l}.down"].T
    return norm(x) @ params["head"].T


def loss_of(params, tokens, grams):
    logits = logits_of(params, tokens[:, :-1], grams[:, :-1])
    picked = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    keep = tokens[:, 1:] != SEP  # where a prompt ends is the user's choice, not ours
    nll = (jax.nn.logsumexp(logits, -1) - picked) * keep
    return nll.sum() / keep.sum()


def orthogonal(g):
    """Five Newton-Schulz steps towards the nearest orthogonal matrix (Muon)."""
    flip = g.shape[0] > g.shape[1]
    x = g.T if flip else g
    x = x / (jnp.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x.T if flip else x


def is_matrix(name):
    return "." in name  # Muon for the matrices inside layers, Adam for tables and head


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def step(params, first, second, tokens, grams, rate, t):
    loss, grads = jax.value_and_grad(loss_of)(params, tokens, grams)
    for name, g in grads.items():
        if is_matrix(name):
            first[name] = 0.95 * first[name] + g
            update = orthogonal(g + 0.95 * first[name])
            update *= max(1, g.shape[0] / g.shape[1]) ** 0.5
            params[name] = params[name] * (1 - rate * PEAK_MATRIX * 0.1) - rate * PEAK_MATRIX * update
        else:
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.98 * second[name] + 0.02 * g * g
            m, v = first[name] / (1 - 0.9**t), second[name] / (1 - 0.98**t)
            params[name] -= rate * PEAK_OTHER * m / (jnp.sqrt(v) + 1e-8)
    return params, first, second, loss


def dialogue(sents, rng, at):
    """One training row from sentence `at` on: prompt SEP answer EOS, repeated."""
    row = [BOS]
    while len(row) <= LENGTH:
        for length, end in ((rng.integers(1, 4), SEP), (rng.integers(1, 3), EOS)):
            text = " ".join(sents[at : at + length])
            row += text.encode()
            row.append(end)
            at = (at + length) % len(sents)
    return row[: LENGTH + 1]


def batch(sents, rng, starts):
    tokens = np.array([dialogue(sents, rng, s) for s in starts], np.int32)
    return tokens, buckets(tokens)


def schedule(progress, t):
    """Linear warm-up, constant, then linear decay over the last 60 % of the time."""
    return min(1.0, t / WARMUP, max(0.0, (1 - progress) / 0.6) + 0.01)


def quantised(w):
    """int8 per row with a float32 scale, symmetric."""
    scale = np.abs(w).max(1).astype(np.float32) / 127
    scale = np.where(scale == 0, 1, scale).astype(np.float32)
    return scale, np.rint(w / scale[:, None]).clip(-127, 127).astype(np.int8)


def save(params, path, loss):
    body, rounded = b"", {}
    for name, _ in tensors():
        scale, q = quantised(np.asarray(params[name]))
        body += scale.astype("<f4").tobytes() + q.tobytes()
        rounded[name] = jnp.asarray(q * scale[:, None])
    sizes = (LAYERS, RING_LAYER, DIM, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, WINDOW, VOCAB, *GRAMS)
    data = b"SHREFLM1" + struct.pack(f"<{len(sizes)}I", *sizes) + body
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "wb") as f:
        f.write(data + hashlib.sha256(data).digest())
    os.replace(path + ".new", path)
    golden(rounded, os.path.join(os.path.dirname(path), "testdata", "golden.json"), loss)


def golden(params, path, loss):
    """The logits after a text longer than the window, for the Go test."""
    text = "It is a truth universally acknowledged, that a single man in possession "
    text += "of a good fortune, must be in want of a wife. However little known the "
    text += "feelings or views of such a man may be on his first entering a neighbourhood,"
    tokens = np.array([[BOS, *text.encode(), SEP]], np.int32)
    logits = logits_of(params, jnp.asarray(tokens), jnp.asarray(buckets(tokens)))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump({"loss_nats": round(float(loss), 4), "tokens": tokens[0].tolist(),
                   "logits": [round(float(v), 4) for v in logits[0, -1]]}, f)
        f.write("\n")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--rdb", required=True)
    args.add_argument("--out", required=True)
    args.add_argument("--minutes", type=float, default=25)
    args.add_argument("--seed", type=int, default=1)
    args = args.parse_args()
    rng = np.random.default_rng(args.seed)
    sents = corpus.sentences(args.rdb)
    held_out = batch(sents, np.random.default_rng(7), range(len(sents) - 640, len(sents) - 64, 18))
    params = initial(rng)
    first = {n: jnp.zeros_like(p) for n, p in params.items()}
    second = {n: jnp.zeros_like(p) for n, p in params.items()}
    evaluate = jax.jit(loss_of)
    begin, t, progress = time.time(), 0, 0.0
    while progress < 1:
        t += 1
        tokens, grams = batch(sents, rng, rng.integers(0, len(sents) - 700, BATCH))
        rate = schedule(progress, t)
        params, first, second, loss = step(params, first, second, tokens, grams, rate, float(t))
        progress = (time.time() - begin) / 60 / args.minutes
        if t % 100 == 0 or progress >= 1:
            held = evaluate(params, *held_out)
            print(f"{t} {progress:.2f} train {loss:.3f} held-out {held:.3f}", flush=True)
        if t % 500 == 0 or progress >= 1:
            save(params, args.out, held)


if __name__ == "__main__":
    main()
