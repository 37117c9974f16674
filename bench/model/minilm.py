"""all-MiniLM-L6-v2 in plain PyTorch, and its 8-bit file.

Texts of a batch are packed one after another without padding, except inside the attention.
"""

import gzip
import json
import math
import struct
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

WIDTH = 384
HEADS = 12
FEED_FORWARD = 1536
LAYERS = 6
VOCABULARY = 30_522
POSITIONS = 512
SEPARATOR = 102
LAYER_NORM_EPSILON = 1e-12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.context = nn.Linear(WIDTH, WIDTH)
        self.context_norm = nn.LayerNorm(WIDTH, eps=LAYER_NORM_EPSILON)
        self.rise = nn.Linear(WIDTH, FEED_FORWARD)
        self.fall = nn.Linear(FEED_FORWARD, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, eps=LAYER_NORM_EPSILON)

    def forward(self, hidden: Tensor, places: Tensor, mask: Tensor, texts: int, longest: int) -> Tensor:
        """hidden: [tokens, WIDTH] of all texts; places: where each token lies in [texts * longest]."""
        qkv = self.qkv(hidden)
        padded = qkv.new_zeros(texts * longest, 3 * WIDTH).index_copy(0, places, qkv)
        query, key, value = padded.view(texts, longest, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        # Written out, because the backward pass of PyTorch's fused attention takes 70 % of a training step on a CPU.
        scores = (query @ key.transpose(2, 3) / math.sqrt(WIDTH // HEADS)).masked_fill(~mask, -torch.inf)
        context = (scores.softmax(3, torch.float32).to(value.dtype) @ value).transpose(1, 2)
        context = context.reshape(texts * longest, WIDTH)[places]
        hidden = self.context_norm(hidden + self.context(context))
        return self.output_norm(hidden + self.fall(functional.gelu(self.rise(hidden))))


class MiniLm(nn.Module):
    """Embeds texts as unit vectors: the mean of the last layer over all tokens."""

    def __init__(self, folder: Path):
        """folder: `model.safetensors` (float32) and `tokenizer.json` of sentence-transformers/all-MiniLM-L6-v2."""
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=LAYER_NORM_EPSILON)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.load_state_dict(_original_state(_read_safetensors(folder / "model.safetensors")))

    def ids(self, texts: list[str], longest: int) -> list[list[int]]:
        """Token ids with [CLS] and [SEP], at most `longest` per text."""
        encoded = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        return [ids if len(ids) <= longest else ids[: longest - 1] + [SEPARATOR] for ids in encoded]

    def forward(self, ids: list[list[int]]) -> Tensor:
        """Unit vectors, [texts, WIDTH]."""
        lengths = torch.tensor([len(one) for one in ids])
        longest = int(lengths.max())
        flat = torch.tensor([token for one in ids for token in one])
        text = torch.repeat_interleave(torch.arange(len(ids)), lengths)
        position = torch.cat([torch.arange(length) for length in lengths.tolist()])
        mask = (torch.arange(longest)[None] < lengths[:, None])[:, None, None, :]
        hidden = self.norm(self.words(flat) + self.positions(position) + self.types.weight[0])
        for layer in self.layers:
            hidden = layer(hidden, text * longest + position, mask, len(ids), longest)
        sums = torch.zeros(len(ids), WIDTH).index_add(0, text, hidden.float())
        return functional.normalize(sums / lengths[:, None], dim=1)

    @torch.no_grad()
    def embed(self, texts: list[str], longest: int, tokens_at_once: int = 6_000) -> np.ndarray:
        """Unit vectors, float32 [texts, WIDTH]; texts of similar length share a batch."""
        ids = self.ids(texts, longest)
        vectors = np.zeros((len(ids), WIDTH), np.float32)
        batch: list[int] = []
        tokens = 0
        for index in sorted(range(len(ids)), key=lambda i: len(ids[i])):
            if batch and tokens + len(ids[index]) > tokens_at_once:
                vectors[batch] = self([ids[i] for i in batch]).float().numpy()
                batch, tokens = [], 0
            batch.append(index)
            tokens += len(ids[index])
        if batch:
            vectors[batch] = self([ids[i] for i in batch]).float().numpy()
        return vectors


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = entry["data_offsets"]
        values = np.frombuffer(data, np.float32, (end - begin) // 4, start + begin)
        tensors[name.removeprefix("bert.")] = torch.from_numpy(values.reshape(entry["shape"]).copy())
    return tensors


def _original_state(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    state = {
        "words.weight": tensors["embeddings.word_embeddings.weight"],
        "positions.weight": tensors["embeddings.position_embeddings.weight"],
        "types.weight": tensors["embeddings.token_type_embeddings.weight"],
        "norm.weight": tensors["embeddings.LayerNorm.weight"],
        "norm.bias": tensors["embeddings.LayerNorm.bias"],
    }
    parts = {
        "context": "attention.output.dense",
        "context_norm": "attention.output.LayerNorm",
        "rise": "intermediate.dense",
        "fall": "output.dense",
        "output_norm": "output.LayerNorm",
    }
    for layer in range(LAYERS):
        theirs = f"encoder.layer.{layer}."
        for kind in ("weight", "bias"):
            qkv = [tensors[f"{theirs}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            state[f"layers.{layer}.qkv.{kind}"] = torch.cat(qkv)
            for ours, part in parts.items():
                state[f"layers.{layer}.{ours}.{kind}"] = tensors[f"{theirs}{part}.{kind}"]
    return state


def write_quantized(model: MiniLm, file: Path) -> None:
    """Writes the model as gzipped safetensors, the format that src/core/search/embed/minilm/weights.ts reads.

    Matrices are int8 with one float32 scale per output column (per row of the word table): value = int8 * scale. A matrix of
    `nn.Linear` is stored transposed, [inner, columns]. Everything else is float32. The vocabulary is in the metadata, one
    piece per line in the order of the ids.
    """
    tensors: dict[str, np.ndarray] = {}
    for name, value in model.state_dict().items():
        array = value.numpy()
        if array.ndim == 1 or name in ("positions.weight", "types.weight"):
            tensors[name] = array.astype(np.float32)
            continue
        # One scale per row of [rows, inner]; a row is an output column of the transposed matrix, or a word.
        scales = np.abs(array).max(axis=1) / 127
        quantized = np.rint(array / scales[:, None]).astype(np.int8)
        tensors[name] = quantized if name == "words.weight" else np.ascontiguousarray(quantized.T)
        tensors[name.removesuffix("weight") + "scale"] = scales.astype(np.float32)
    by_id = sorted(model.tokenizer.get_vocab().items(), key=lambda item: item[1])
    header: dict[str, object] = {"__metadata__": {"vocabulary": "\n".join(piece for piece, _ in by_id)}}
    offset = 0
    for name, array in tensors.items():
        kind = "I8" if array.dtype == np.int8 else "F32"
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    head = json.dumps(header, ensure_ascii=False).encode()
    # The data start at a multiple of 8 bytes, as the format asks.
    head += b" " * (-len(head) % 8)
    data = struct.pack("<Q", len(head)) + head + b"".join(array.tobytes() for array in tensors.values())
    file.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def read_quantized(file: Path) -> dict[str, Tensor]:
    """The state of a model that `write_quantized` wrote, as float32."""
    data = gzip.decompress(file.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length
    arrays = {}
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = np.int8 if entry["dtype"] == "I8" else np.float32
        arrays[name] = np.frombuffer(data[start + begin : start + end], kind).reshape(entry["shape"])
    state = {}
    for name, array in arrays.items():
        if name.endswith(".scale"):
            continue
        values = array.astype(np.float32)
        if array.dtype == np.int8:
            scales = arrays[name.removesuffix("weight") + "scale"]
            values = values * scales[:, None] if name == "words.weight" else (values * scales).T
        state[name] = torch.from_numpy(np.ascontiguousarray(values))
    return state
