"""Rewrites the reference vectors of test/core/search/embed/minilm-reference.json from the shipped 8-bit weights.

Its texts and token ids stay. With --float FILE (of train.py) it also prints how far the 8-bit weights are from the float ones.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from minilm import MiniLm, read_quantized

HERE = Path(__file__).parent
REFERENCE = HERE / "../../test/core/search/embed/minilm-reference.json"
SHIPPED = HERE / "../../src/core/search/embed/minilm/model.safetensors.gz"
LONGEST = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("original", type=Path, help="folder with model.safetensors and tokenizer.json")
    parser.add_argument("--float", type=Path, help="the float weights that train.py saved")
    options = parser.parse_args()
    reference = json.loads(REFERENCE.read_text())
    texts = [case["text"] for case in reference["cases"]]
    model = MiniLm(options.original).eval()
    model.load_state_dict(read_quantized(SHIPPED))
    vectors = np.concatenate([model.embed([text], LONGEST) for text in texts])
    for case, vector in zip(reference["cases"], vectors, strict=True):
        case.pop("original_e4", None)
        case["quantized_e4"] = np.rint(vector * 10_000).astype(int).tolist()
    reference["made_by"] = f"bench/model/reference.py, torch {torch.__version__}, float32, one text at a time"
    reference.pop("about_original_e4", None)
    reference["about_quantized_e4"] = "the model in PyTorch, its 8-bit weights as float32; components times 10,000"
    REFERENCE.write_text(json.dumps(reference, ensure_ascii=False, indent=2) + "\n")
    if options.float:
        model.load_state_dict(torch.load(options.float))
        floats = np.concatenate([model.embed([text], LONGEST) for text in texts])
        cosines = (vectors * floats).sum(1)
        print(f"cosine of 8-bit and float vectors: median {np.median(cosines):.5f}, lowest {cosines.min():.5f}")


if __name__ == "__main__":
    main()
