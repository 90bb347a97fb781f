"""Makes a folder that vLLM loads of a GGUF file of Llama's architecture.

What the file quantized is written out as float16. The tokenizer, with the
template of its chats, is the file's own.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "extra"))  # where gguf is

import numpy as np
from gguf import GGUFReader, dequantize
from safetensors.numpy import save_file
from transformers import AutoTokenizer, LlamaConfig

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def name_of(tensor: str) -> str:
    name = tensor.removesuffix(".weight")
    if not name.startswith("blk."):
        return WHOLE[name] + ".weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{LAYER[part]}.weight"


def halves(w: np.ndarray, heads: int) -> np.ndarray:
    """A GGUF file has the two halves of each head that rotate together side by side."""
    return w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def main(file: str, folder: str) -> None:
    reader = GGUFReader(file)

    def field(key: str, otherwise=None):
        f = reader.get_field(key)
        if f is None and otherwise is None:
            raise SystemExit(f"{file} lacks {key}")
        return otherwise if f is None else f.contents()

    if (arch := field("general.architecture")) != "llama":
        raise SystemExit(f"{file} is of the architecture {arch}, not llama")
    heads, width = field("llama.attention.head_count"), field("llama.embedding_length")
    kv_heads = field("llama.attention.head_count_kv", heads)
    tensors = {}
    for t in reader.tensors:
        w = dequantize(t.data, t.tensor_type)
        if t.name.endswith("attn_q.weight"):
            w = halves(w, heads)
        if t.name.endswith("attn_k.weight"):
            w = halves(w, kv_heads)
        tensors[name_of(t.name)] = np.ascontiguousarray(w, dtype=np.float16)
    to = Path(folder)
    to.mkdir(parents=True)
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=tensors["model.embed_tokens.weight"].shape[0],
        hidden_size=width,
        intermediate_size=field("llama.feed_forward_length"),
        num_hidden_layers=field("llama.block_count"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=width // heads,
        rms_norm_eps=field("llama.attention.layer_norm_rms_epsilon"),
        max_position_embeddings=field("llama.context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": float(field("llama.rope.freq_base", 10000.0))},
        tie_word_embeddings="lm_head.weight" not in tensors,
        bos_token_id=field("tokenizer.ggml.bos_token_id"),
        eos_token_id=field("tokenizer.ggml.eos_token_id"),
        dtype="float16",
    ).save_pretrained(to)
    path = Path(file)
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(to)


if __name__ == "__main__":
    main(*sys.argv[1:3])
