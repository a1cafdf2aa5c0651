"""Writes tests/golden/{model,adam}.safetensors: our model as PyTorch computes it.

    python3 tests/golden/model.py        (needs: pip install torch)

The model below is the Transformer of the paper written plainly, one sentence at a time, so there is
no padding and no mask but the causal one; autograd does the gradients and torch.optim the steps.
Everything is computed in double and stored as f32, so what the tests measure is our own rounding.
The files are committed; neither the build nor the tests need this script.

model.safetensors: the initial parameters under our names, batch.N.* (ids as numbers, since our
reader knows no integers), and of batch 0 logits, loss and grad.* of the summed loss.
adam.safetensors: the parameters after ten steps on the two batches in turn, and the gradient norm
before clipping at each step.
"""
import json
import math
import struct
from pathlib import Path

import torch
import torch.nn.functional as F

D, FF, HEADS, LAYERS, V = 32, 64, 4, 2, 50
BOS, EOS, FIRST_WORD = 1, 2, 3
SMOOTHING, EPSILON = 0.1, 1e-6
STEPS, WARMUP, CLIP = 10, 100, 1.6
# (source, target) lengths with marks; rows of a side are no multiple of anything.
BATCHES = [[(9, 7), (1, 3), (17, 19), (4, 1), (2, 11)], [(6, 16), (13, 2), (3, 9)]]


def parameters():
    """Names and initial values; no gain is 1 and no bias 0, so that each is seen to be used."""

    def attention(prefix):
        for name in ["q_proj", "k_proj", "v_proj", "out_proj"]:
            p[f"{prefix}.{name}.weight"] = matrix(D, D)
        norm(prefix)

    def feed_forward(prefix):
        p[f"{prefix}.fc1.weight"], p[f"{prefix}.fc1.bias"] = matrix(FF, D), 0.1 * torch.randn(FF)
        p[f"{prefix}.fc2.weight"], p[f"{prefix}.fc2.bias"] = matrix(D, FF), 0.1 * torch.randn(D)
        norm(prefix)

    def norm(prefix):
        p[f"{prefix}.norm.weight"] = 1 + 0.1 * torch.randn(D)
        p[f"{prefix}.norm.bias"] = 0.1 * torch.randn(D)

    def matrix(rows, cols):
        return (2 * torch.rand(rows, cols) - 1) * math.sqrt(6 / (rows + cols))

    p = {"embed.weight": torch.randn(V, D) * D**-0.5}
    for n in range(LAYERS):
        attention(f"encoder.layers.{n}.self_attn")
        feed_forward(f"encoder.layers.{n}.ff")
    for n in range(LAYERS):
        attention(f"decoder.layers.{n}.self_attn")
        attention(f"decoder.layers.{n}.cross_attn")
        feed_forward(f"decoder.layers.{n}.ff")
    return {name: x.float().double().requires_grad_() for name, x in p.items()}


def embed(p, ids):
    position = torch.arange(len(ids), dtype=torch.float64)[:, None]
    angle = position / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    table = torch.stack([angle.sin(), angle.cos()], dim=2).reshape(len(ids), D)
    return p["embed.weight"][ids] * math.sqrt(D) + table


def add_norm(p, prefix, x, r):
    return F.layer_norm(x + r, [D], p[f"{prefix}.norm.weight"], p[f"{prefix}.norm.bias"], EPSILON)


def attention(p, prefix, x, memory, causal):
    def heads(name, rows):
        return (rows @ p[f"{prefix}.{name}.weight"].T).reshape(-1, HEADS, D // HEADS).transpose(0, 1)

    q, k, v = heads("q_proj", x), heads("k_proj", memory), heads("v_proj", memory)
    scores = q @ k.transpose(1, 2) / math.sqrt(D // HEADS)
    if causal:
        scores += torch.full(scores.shape[1:], -math.inf).triu(1)
    o = (scores.softmax(2) @ v).transpose(0, 1).reshape(-1, D)
    return add_norm(p, prefix, x, o @ p[f"{prefix}.out_proj.weight"].T)


def feed_forward(p, prefix, x):
    h = F.relu(F.linear(x, p[f"{prefix}.fc1.weight"], p[f"{prefix}.fc1.bias"]))
    return add_norm(p, prefix, x, F.linear(h, p[f"{prefix}.fc2.weight"], p[f"{prefix}.fc2.bias"]))


def logits_of(p, src, tgt_in):
    memory, y = embed(p, src), embed(p, tgt_in)
    for n in range(LAYERS):
        memory = attention(p, f"encoder.layers.{n}.self_attn", memory, memory, False)
        memory = feed_forward(p, f"encoder.layers.{n}.ff", memory)
    for n in range(LAYERS):
        y = attention(p, f"decoder.layers.{n}.self_attn", y, y, True)
        y = attention(p, f"decoder.layers.{n}.cross_attn", y, memory, False)
        y = feed_forward(p, f"decoder.layers.{n}.ff", y)
    return y @ p["embed.weight"].T


def draw_batch(lengths):
    def ids(n):
        return torch.cat([torch.randint(FIRST_WORD, V, (n - 1,)), torch.tensor([EOS])])

    return [(ids(s), ids(t)) for s, t in lengths]


def forward(p, batch):
    """Logits of all rows, smoothed loss, negative log-likelihood; both summed."""
    begin = torch.tensor([BOS])
    logits = torch.cat([logits_of(p, s, torch.cat([begin, t[:-1]])) for s, t in batch])
    target = torch.cat([t for _, t in batch])
    smoothed = F.cross_entropy(logits, target, label_smoothing=SMOOTHING, reduction="sum")
    return logits, smoothed, F.cross_entropy(logits, target, reduction="sum")


def adam_steps(p, batches):
    """The gradient norm before clipping at each step; p is changed."""
    optimizer = torch.optim.Adam(p.values(), betas=(0.9, 0.98), eps=1e-9)
    norms = []
    for step in range(1, STEPS + 1):
        batch = batches[(step - 1) % len(batches)]
        optimizer.param_groups[0]["lr"] = D**-0.5 * min(step**-0.5, step * WARMUP**-1.5)
        optimizer.zero_grad()
        (forward(p, batch)[1] / sum(len(t) for _, t in batch)).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item())
        optimizer.step()
    return norms


def save(path, tensors):
    header, data = {}, b""
    for name, x in tensors.items():
        values = [float(v) for v in x.detach().flatten()]
        start = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": list(x.shape), "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    torch.manual_seed(1)
    here = Path(__file__).parent
    p = parameters()
    batches = [draw_batch(lengths) for lengths in BATCHES]
    logits, smoothed, nll = forward(p, batches[0])
    smoothed.backward()

    out = dict(p)
    for n, batch in enumerate(batches):
        out[f"batch.{n}.src_len"] = torch.tensor([len(s) for s, _ in batch])
        out[f"batch.{n}.tgt_len"] = torch.tensor([len(t) for _, t in batch])
        out[f"batch.{n}.src"] = torch.cat([s for s, _ in batch])
        out[f"batch.{n}.tgt"] = torch.cat([t for _, t in batch])
    out["logits"], out["loss"] = logits, torch.stack([smoothed, nll])
    out |= {f"grad.{name}": x.grad for name, x in p.items()}
    save(here / "model.safetensors", out)

    norms = adam_steps(p, batches)
    bites = sum(n > CLIP for n in norms)
    assert 0 < bites < STEPS, "clipping should bite in some steps and not in others"
    save(here / "adam.safetensors", p | {"norm": torch.tensor(norms)})
    print(f"loss {smoothed.item():.6f}, nll {nll.item():.6f}; clipped {bites} of {STEPS} steps:")
    print(" ".join(f"{n:.3f}" for n in norms))


if __name__ == "__main__":
    main()
