"""Writes tests/golden/attention.safetensors: the attention weights of the golden models.

    python3 tests/golden/attention.py        (needs: pip install torch)

The models are those of model.safetensors and of some files of variants/, read from there, over
batch 0. For each there are FORM.encoder, FORM.decoder, FORM.cross [layers * rows * heads, keys]:
the rows of all sentences one after another, with 0 after the last key of a sentence.
"""
import json
import struct
from pathlib import Path
from types import SimpleNamespace

import torch

from model import BOS, PAPER, Model, save
from variants import SHAPE, VARIANTS

HERE = Path(__file__).parent
FORMS = ["window_relative", "rope_d_k", "alibi_grouped", "additive", "linear_odd_heads"]


def load(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    out = {}
    for name, x in header.items():
        start, end = x["data_offsets"]
        values = struct.unpack(f"<{(end - start) // 4}f", body[start:end])
        out[name] = torch.tensor(values, dtype=torch.float64).reshape(x["shape"])
    return out


def sentences(tensors):
    lengths = [[int(n) for n in tensors[f"batch.0.{side}_len"]] for side in ["src", "tgt"]]
    src = tensors["batch.0.src"].long().split(lengths[0])
    tgt = tensors["batch.0.tgt"].long().split(lengths[1])
    return [(s, torch.cat([torch.tensor([BOS]), t[:-1]])) for s, t in zip(src, tgt)]


def stacked(model, prefixes):
    """[layers * rows * heads, keys] of sub-layers with these names."""
    keys = max(w.shape[2] for w in model.seen[prefixes[0]])
    layers = []
    for prefix in prefixes:
        rows = [w.transpose(0, 1) for w in model.seen[prefix]]
        pad = torch.nn.functional.pad
        layers.append(torch.cat([pad(w, (0, keys - w.shape[2])) for w in rows]))
    return torch.cat(layers).reshape(-1, keys)


def weights_of(form, path, c):
    tensors = load(path)
    model = Model(tensors, c)
    for src, tgt_in in sentences(tensors):
        model.logits(src, tgt_in)
    encoder = [f"encoder.layers.{n}.self_attn" for n in range(c.encoder_layers)]
    decoder = [f"decoder.layers.{n}" for n in range(c.decoder_layers)]
    return {
        f"{form}.encoder": stacked(model, encoder),
        f"{form}.decoder": stacked(model, [f"{x}.self_attn" for x in decoder]),
        f"{form}.cross": stacked(model, [f"{x}.cross_attn" for x in decoder]),
    }


def main():
    torch.set_default_dtype(torch.float64)
    out = weights_of("paper", HERE / "model.safetensors", PAPER)
    for name in FORMS:
        c = SimpleNamespace(**vars(PAPER) | SHAPE | VARIANTS[name])
        out |= weights_of(name, HERE / "variants" / f"{name}.safetensors", c)
    save(HERE / "attention.safetensors", out)


if __name__ == "__main__":
    main()
