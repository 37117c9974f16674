"""Trains the embedding model that Switchboard ships. README.md of this folder says how to run it.

Contrastive learning (InfoNCE) on pairs of a request and the text of a tool or server that serves it: of all texts in a
batch, the request shall be closest to its own. Deterministic for a given machine, number of threads and version of PyTorch.
"""

import argparse
import gzip
import json
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from minilm import MiniLm, write_quantized
from torch import Tensor
from torch.nn import functional

LICENCES = {"MIT", "Apache-2.0"}
"""Pairs of public sources are used only under these: weights made from them are passed on."""

LONGEST_REQUEST = 56
LONGEST_TEXT = 72
MAX_PROSE = 1_000

BATCH = 96
TEMPERATURE = 0.05
WARM_UP = 0.1
CLIP = 1.0
REVERSE_WEIGHT = 0.3
"""The weight of the loss from texts to requests."""
NAME_ONLY = 0.15
"""The share of texts that lose their description: many tools of the world have none."""
WITHOUT_SERVER = 0.3
"""The share of tool texts without the name of their server, because names of unseen servers say less."""
CLUSTERED = 0.5
"""The share of batches made of groups of near neighbours: their texts are each other's hard negatives."""
GROUP = 24

AT_ONCE = 512
MINED = 30
"""Hard negatives come from the original model's best texts for a request, unless they might serve it, too."""
NEGATIVE_MARGIN = 0.08
"""A hard negative scores less than this above the request's best known text."""
ALIKE = 0.75
"""A hard negative is less similar than this to the request's known texts."""
SAME = 0.8
"""Texts this similar to a request's own text may serve it, too."""
BETTER = 0.2
"""Texts that score this much above a request's own text may serve it, too."""


@dataclass(frozen=True)
class Text:
    """The text of a tool or a server, in the parts that training leaves out at random."""

    server: str
    name: str
    description: str

    def prose(self, *, with_server: bool = True, with_description: bool = True) -> str:
        """The form that src/core/search/documents.ts gives to the model."""
        head = f"{self.server}: " if with_server and self.server and self.server != self.name else ""
        tail = f". {self.description}" if with_description and self.description else ""
        return f"{head}{self.name}{tail}"[:MAX_PROSE]


@dataclass(frozen=True)
class Pairs:
    """requests[pair[0]] is served by texts[pair[1]]; `serves` has all known texts of a request."""

    requests: list[str]
    texts: list[Text]
    pairs: list[tuple[int, int]]
    serves: list[set[int]]


def split_identifier(name: str) -> str:
    """getUser_byID -> get User by ID."""
    parts = re.split(r"[\W_]+", name)
    humps = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
    return " ".join(hump for part in parts if part for hump in humps.split(part))


def read_pairs(catalogue: Path, own: Path, public: Path | None) -> Pairs:
    servers = {entry["id"]: entry for entry in _json_lines(catalogue)}
    rows: list[tuple[str, Text]] = []
    for row in _json_lines(own):
        server = servers.get(row["server"])
        if server is None:
            continue
        tools = {tool["name"]: tool.get("description", "") for tool in server.get("tools", [])}
        if row["tool"] is None:
            rows.append((row["query"], Text(server["name"], server["name"], server["description"])))
        elif row["tool"] in tools:
            name = split_identifier(row["tool"])
            rows.append((row["query"], Text(server["name"], name, tools[row["tool"]])))
    for row in _json_lines(public) if public else []:
        if row["licence"] in LICENCES:
            name = split_identifier(row["tool_name"])
            rows.append((row["query"], Text(row.get("server") or "", name, row.get("tool_description") or "")))
    requests = {query: index for index, query in enumerate(sorted({query for query, _ in rows}))}
    texts: dict[Text, int] = {}
    pairs = [(requests[query], texts.setdefault(text, len(texts))) for query, text in rows]
    serves: list[set[int]] = [set() for _ in requests]
    for request, text in pairs:
        serves[request].add(text)
    return Pairs(list(requests), list(texts), pairs, serves)


def _json_lines(file: Path) -> list[dict]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return [json.loads(line) for line in lines if line.strip()]


class Judge:
    """The original model's view of requests and texts: mines hard negatives, and spots texts that might serve a request."""

    def __init__(self, model: MiniLm, data: Pairs):
        with torch.autocast("cpu", torch.bfloat16):
            self.requests = torch.from_numpy(model.embed(data.requests, LONGEST_REQUEST))
            self.texts = torch.from_numpy(model.embed([text.prose() for text in data.texts], LONGEST_TEXT))
        self.negatives: list[list[int]] = []
        for first in range(0, len(data.requests), AT_ONCE):
            scores = self.requests[first : first + AT_ONCE] @ self.texts.T
            best = scores.topk(MINED).indices.tolist()
            for row, candidates in enumerate(best):
                self.negatives.append(self._negatives(scores[row], candidates, data.serves[first + row]))

    def _negatives(self, scores: Tensor, candidates: list[int], serves: set[int]) -> list[int]:
        known = self.texts[sorted(serves)]
        limit = scores[sorted(serves)].max() + NEGATIVE_MARGIN
        alike = (known @ self.texts[candidates].T).max(0).values < ALIKE
        fits = alike & (scores[candidates] < limit)
        return [text for text, fit in zip(candidates, fits.tolist(), strict=True) if fit and text not in serves]

    def possible_positives(self, requests: list[int], own: list[int], texts: list[int]) -> Tensor:
        """Which texts may serve a request although no label says so, bool [requests, texts]."""
        alike = self.texts[own] @ self.texts[texts].T > SAME
        scores = self.requests[requests] @ self.texts[texts].T
        own_scores = (self.requests[requests] * self.texts[own]).sum(1)
        return alike | (scores > own_scores[:, None] + BETTER)


def batches(data: Pairs, judge: Judge) -> list[list[int]]:
    """One epoch of batches, as indices of pairs: half at random, half of groups of neighbours."""
    order = random.sample(range(len(data.pairs)), len(data.pairs))
    clustered, rest = order[: int(len(order) * CLUSTERED)], order[int(len(order) * CLUSTERED) :]
    result = [rest[at : at + BATCH] for at in range(0, len(rest) - BATCH // 2, BATCH)]
    groups = _groups([data.pairs[index][1] for index in clustered], judge.texts)
    random.shuffle(groups)
    size = BATCH // GROUP
    for at in range(0, len(groups) - size + 1, size):
        result.append([clustered[index] for group in groups[at : at + size] for index in group])
    random.shuffle(result)
    return result


def _groups(texts: list[int], vectors: Tensor) -> list[list[int]]:
    """Greedy groups of GROUP neighbours with different texts, as indices of `texts`."""
    mine = vectors[texts]
    free = np.ones(len(texts), bool)
    groups = []
    for seed in np.random.permutation(len(texts)).tolist():
        candidates = np.flatnonzero(free)
        if len(candidates) < GROUP:
            break
        if not free[seed]:
            continue
        similarity = (mine[candidates] @ mine[seed]).numpy()
        group: list[int] = []
        seen: set[int] = set()
        for index in candidates[np.argsort(-similarity)].tolist():
            if texts[index] in seen:
                continue
            seen.add(texts[index])
            group.append(index)
            if len(group) == GROUP:
                break
        free[group] = False
        groups.append(group)
    return groups


def shown(text: Text) -> str:
    return text.prose(with_server=random.random() >= WITHOUT_SERVER, with_description=random.random() >= NAME_ONLY)


def loss_of(model: MiniLm, data: Pairs, judge: Judge, batch: list[int]) -> Tensor:
    requests = [data.pairs[index][0] for index in batch]
    own = [data.pairs[index][1] for index in batch]
    mined = [random.choice(judge.negatives[request]) for request in requests if judge.negatives[request]]
    texts = list(dict.fromkeys(own + mined))
    column = {text: at for at, text in enumerate(texts)}
    target = torch.tensor([column[text] for text in own])
    with torch.autocast("cpu", torch.bfloat16):
        request_vectors = model(model.ids([data.requests[request] for request in requests], LONGEST_REQUEST))
        text_vectors = model(model.ids([shown(data.texts[text]) for text in texts], LONGEST_TEXT))
    rows = torch.arange(len(batch))

    maybe = judge.possible_positives(requests, own, texts)
    for row, request in enumerate(requests):
        maybe[row, [column[text] for text in data.serves[request] if text in column]] = True
    maybe[rows, target] = False
    scores = (request_vectors @ text_vectors.T / TEMPERATURE).masked_fill(maybe, -1e4)

    same = judge.texts[own] @ judge.texts[own].T > SAME
    for row, text in enumerate(own):
        same[row, [at for at, request in enumerate(requests) if text in data.serves[request]]] = True
    same[rows, rows] = False
    reverse = (text_vectors[target] @ request_vectors.T / TEMPERATURE).masked_fill(same, -1e4)
    forward_loss = functional.cross_entropy(scores, target)
    return (forward_loss + REVERSE_WEIGHT * functional.cross_entropy(reverse, rows)) / (1 + REVERSE_WEIGHT)


def train(model: MiniLm, data: Pairs, *, epochs: int, rate: float, with_words: bool) -> None:
    judge = Judge(model, data)
    for part in (model.positions, model.types, model.norm, *([] if with_words else [model.words])):
        part.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = [parameter for parameter in trained if parameter.dim() > 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": 0.01},
            {"params": [parameter for parameter in trained if parameter.dim() == 1], "weight_decay": 0},
        ],
        betas=(0.9, 0.98),
    )
    steps = [batch for _ in range(epochs) for batch in batches(data, judge)]
    started = time.monotonic()
    losses = []
    for step, batch in enumerate(steps):
        done = step / len(steps)
        warmed = min(1, (step + 1) / (WARM_UP * len(steps)))
        for group in optimizer.param_groups:
            group["lr"] = rate * warmed * max(0.02, min(1, (1 - done) / (1 - WARM_UP)))
        loss = loss_of(model, data, judge, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        losses.append(loss.item())
        if (step + 1) % 50 == 0:
            elapsed = time.monotonic() - started
            print(f"step {step + 1} of {len(steps)}, loss {np.mean(losses[-50:]):.3f}, {elapsed:.0f} s", flush=True)


def main() -> None:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("original", type=Path, help="folder with model.safetensors and tokenizer.json")
    parser.add_argument("--public", type=Path, help="public pairs, one JSON object a line")
    parser.add_argument("--own", type=Path, default=here / "../training/requests.jsonl")
    parser.add_argument("--catalogue", type=Path, default=here / "../../catalogue/servers.jsonl")
    parser.add_argument("--out", type=Path, default=here / "../../src/core/search/embed/minilm/model.safetensors.gz")
    parser.add_argument("--float-out", type=Path, help="also saves the float weights, for torch.load")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=4e-5)
    parser.add_argument("--with-words", action="store_true", help="trains the word table, too")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    random.seed(options.seed)
    np.random.seed(options.seed)
    torch.manual_seed(options.seed)

    data = read_pairs(options.catalogue, options.own, options.public)
    print(f"{len(data.pairs)} pairs of {len(data.requests)} requests and {len(data.texts)} texts", flush=True)
    model = MiniLm(options.original).eval()
    train(model, data, epochs=options.epochs, rate=options.rate, with_words=options.with_words)
    if options.float_out:
        torch.save(model.state_dict(), options.float_out)
    write_quantized(model, options.out)
    print(f"{options.out}: {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
