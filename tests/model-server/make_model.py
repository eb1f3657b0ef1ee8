"""Writes a 1.8 MB GGUF model whose output is a Markov chain over bytes, for llama.cpp's own server.

    python make_model.py OUT.gguf TEMPLATE.jinja

One transformer block with zero weights and one-hot embeddings: the logits of the next byte are a row of the
output matrix. The engine, its tokenizer, its prefix cache, its tool-call parser and its streaming are real,
and what it answers is known: a call of the only tool with the cell `7*6`, and `done` after a tool result.
"""

import sys

import gguf
import numpy as np

WIDTH = 320
END = "<|im_end|>"
SPECIAL = [
    "<|im_start|>",
    END,
    "<call>",
    "</call>",
    "<think>",
    "</think>",
    "<|go_call|>",
    "<|go_text|>",
    "<|go_long|>",
    "<|go_think|>",
]
# What follows what, the likeliest first. The server's grammar for tool calls forbids what does not fit.
CHAIN: dict[str, list[str]] = {
    "<|go_call|>": ["<call>"],
    "<|go_text|>": ["d"],
    "<|go_long|>": ["a"],
    "<|go_think|>": ["<think>"],
    "<think>": ["h"],
    "h": ["m"],
    "m": [".", "d"],
    ".": ["</think>", END],
    "</think>": ["d"],
    "d": ["o"],
    "o": ["n"],
    "n": ["e"],
    "e": [END],
    "a": ["b"],
    "b": ["c"],
    "c": ["a"],
    "<call>": ["{"],
    "{": ['"'],
    '"': ["7", ":", ",", "}"],
    "7": ["*"],
    "*": ["6"],
    "6": ['"'],
    ":": ['"', " "],
    ",": ['"'],
    " ": ['"'],
    "}": ["</call>", "}"],
    "</call>": [END],
}


def byte_tokens() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_in = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in stand_in)
    stand_in |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [stand_in[byte] for byte in range(256)]


def write(out: str, template: str) -> None:
    tokens = byte_tokens()
    space = tokens[32]
    numbers = {name: 256 + place for place, name in enumerate(SPECIAL)}
    tokens += [*SPECIAL, space + "t"]
    types = [1] * 256 + [3 if name.startswith("<|") else 4 for name in SPECIAL] + [1]

    def number(name: str) -> int:
        return numbers[name] if name in numbers else ord(name)

    output = np.zeros((len(tokens), WIDTH), np.float32)
    for current, following in CHAIN.items():
        for place, name in enumerate(following):
            output[number(name), number(current)] = 3.0 - 0.5 * place
    embedding = np.zeros((len(tokens), WIDTH), np.float32)
    embedding[np.arange(len(tokens)), np.arange(len(tokens))] = 1

    model = gguf.GGUFWriter(out, "llama")
    model.add_name("markov")
    model.add_context_length(131072)
    model.add_embedding_length(WIDTH)
    model.add_block_count(1)
    model.add_feed_forward_length(32)
    model.add_head_count(5)
    model.add_head_count_kv(1)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(64)
    model.add_vocab_size(len(tokens))
    model.add_tokenizer_model("gpt2")
    model.add_tokenizer_pre("gpt-2")
    model.add_token_list(tokens)
    model.add_token_types(types)
    model.add_token_merges([space + " t"])
    model.add_eos_token_id(numbers[END])
    model.add_bos_token_id(numbers["<|im_start|>"])
    model.add_add_bos_token(False)
    model.add_chat_template(template)
    ones = np.ones(WIDTH, np.float32)
    model.add_tensor("token_embd.weight", embedding)
    model.add_tensor("output_norm.weight", ones)
    model.add_tensor("output.weight", output)
    model.add_tensor("blk.0.attn_norm.weight", ones)
    model.add_tensor("blk.0.ffn_norm.weight", ones)
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (64, WIDTH),
        "attn_v": (64, WIDTH),
        "attn_output": (WIDTH, WIDTH),
        "ffn_gate": (32, WIDTH),
        "ffn_up": (32, WIDTH),
        "ffn_down": (WIDTH, 32),
    }
    for name, shape in shapes.items():
        model.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, np.float32))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    with open(sys.argv[2], encoding="utf-8") as file:
        write(sys.argv[1], file.read())
