"""Writes tests/golden/variants/NAME.safetensors: a small model of each variant, by PyTorch.

    python3 tests/golden/variants.py [NAME...]      (needs: pip install torch)

The same model and the same file as model.py's, with one batch; the fields that make each variant
are in VARIANTS, with the keys and values of config.json. The list in tests/variants.h has the same
names and fields.
"""
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from model import PAPER, describe, draw_batch, parameters, save

SHAPE = dict(d_model=16, d_ff=32, heads=2, encoder_layers=1, decoder_layers=1)
BATCH = [(9, 7), (1, 3), (17, 19), (4, 1)]
VARIANTS = {
    "gelu": dict(activation="gelu"),
    "silu": dict(activation="silu"),
    "swiglu": dict(activation="swiglu"),
    "no_position": dict(position="none"),
    "bias": dict(bias=True),
    "pre": dict(norm="pre"),
    "pre_gelu": dict(norm="pre", activation="gelu"),
    "pre_bias": dict(norm="pre", bias=True),
    "tie_decoder": dict(tie="decoder"),
    "tie_none": dict(tie="none"),
    "pre_swiglu": dict(norm="pre", activation="swiglu"),
    "learned": dict(position="learned"),
    "rope": dict(position="rope"),
    "rope_d_k": dict(position="rope", heads=3, kv_heads=1, d_k=6, d_v=5),
    "modern": dict(norm="pre", position="rope", activation="swiglu", heads=4, kv_heads=2),
    "learned_tie_none": dict(position="learned", tie="none"),
    "multi_query": dict(kv_heads=1),
    "grouped": dict(heads=4, kv_heads=2),
    "wide_heads": dict(d_k=6, d_v=10),
    "odd_heads": dict(heads=3, kv_heads=1, d_k=5, d_v=7, bias=True),
    "linear": dict(attention="linear"),
    "linear_learned": dict(attention="linear", position="learned", norm="pre"),
    "linear_modern": dict(attention="linear", norm="pre", position="rope", activation="swiglu",
                          heads=4, kv_heads=2),
    "linear_odd_heads": dict(attention="linear", heads=3, kv_heads=1, d_k=5, d_v=7, bias=True),
    "alibi": dict(position="alibi"),
    "alibi_grouped": dict(position="alibi", norm="pre", heads=4, kv_heads=2),
    "relative": dict(position="relative"),
    "relative_grouped": dict(position="relative", heads=3, kv_heads=1, d_k=6, d_v=5),
    "window": dict(attention="window", window=2),
    "window_global": dict(attention="window", window=3, window_global=2),
    "window_relative": dict(attention="window", window=4, window_global=1, position="relative"),
    "window_alibi": dict(attention="window", window=1, position="alibi", heads=4, kv_heads=2),
    "additive": dict(attention="additive"),
    "additive_grouped": dict(attention="additive", position="alibi", heads=3, kv_heads=1, d_k=5,
                             d_v=7),
    "all_at_once": dict(norm="pre", activation="swiglu", position="learned", tie="none", bias=True,
                        heads=4, kv_heads=2, d_k=6, d_v=10),
    "moe": dict(ff="moe", experts=4),
    "moe_one": dict(ff="moe", experts=4, experts_per_token=1, activation="gelu"),
    "moe_modern": dict(ff="moe", experts=5, experts_per_token=3, norm="pre", position="rope",
                       activation="swiglu", heads=4, kv_heads=2),
}


# With seed 1 a unit of this model lies so near 0 that bf16 puts it on the other side of the ReLU.
SEED = {"tie_decoder": 2}


def main():
    here = Path(__file__).parent / "variants"
    here.mkdir(exist_ok=True)
    for name in sys.argv[1:] or VARIANTS:
        torch.manual_seed(SEED.get(name, 1))
        c = SimpleNamespace(**vars(PAPER) | SHAPE | VARIANTS[name])
        out = describe(parameters(c), [draw_batch(BATCH)], c)
        save(here / f"{name}.safetensors", out)
        print(f"{name}: loss {out['loss'][0].item():.6f}")


if __name__ == "__main__":
    main()
