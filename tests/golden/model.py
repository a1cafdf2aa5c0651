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
from types import SimpleNamespace

import torch
import torch.nn.functional as F

V = 50
BOS, EOS, FIRST_WORD = 1, 2, 3
SMOOTHING, EPSILON = 0.1, 1e-6
STEPS, WARMUP, CLIP = 10, 100, 1.6
# (source, target) lengths with marks; rows of a side are no multiple of anything.
BATCHES = [[(9, 7), (1, 3), (17, 19), (4, 1), (2, 11)], [(6, 16), (13, 2), (3, 9)]]

# The paper's form, with the keys of config.json. variants.py changes some of them.
PAPER = SimpleNamespace(
    d_model=32, d_ff=64, heads=4, encoder_layers=2, decoder_layers=2, max_length=24,
    norm="post", activation="relu", position="sinusoid", bias=False, tie="all",
    kv_heads=0, d_k=0, d_v=0, attention="full", window=64,
    window_global=0,  # "global" in config.json, a word of Python
    ff="dense", experts=0, experts_per_token=2,
)
RELATIVE_CLIP = 16


def head_shape(c):
    """Key and value heads, width of a key, width of a value; 0 stands for the paper's."""
    default = c.d_model // c.heads
    return c.kv_heads or c.heads, c.d_k or default, c.d_v or default


def parameters(c=PAPER):
    """Names and initial values; no gain is 1 and no bias 0, so that each is seen to be used."""

    def attention(prefix, self_attention):
        kv_heads, d_k, d_v = head_shape(c)
        rows = {"q_proj": c.heads * d_k, "k_proj": kv_heads * d_k, "v_proj": kv_heads * d_v}
        for name, n in rows.items():
            projection(f"{prefix}.{name}", n, c.d_model)
        projection(f"{prefix}.out_proj", c.d_model, c.heads * d_v)
        if self_attention and c.position == "relative":
            for name, width in [("relative_k", d_k), ("relative_v", d_v)]:
                p[f"{prefix}.{name}.weight"] = torch.randn(2 * RELATIVE_CLIP + 1, width)
        if c.attention == "additive":
            p[f"{prefix}.additive.weight"] = torch.randn(c.heads, d_k)
        norm(prefix)

    def projection(name, rows, cols):
        p[f"{name}.weight"] = matrix(rows, cols)
        if c.bias:
            p[f"{name}.bias"] = 0.1 * torch.randn(rows)

    def feed_forward(prefix):
        outputs = width = c.d_ff
        if c.activation == "swiglu":  # two thirds as wide, in multiples of 16; gate, then up
            width = max(16, round(2 * c.d_ff / 3 / 16) * 16)
            outputs = 2 * width
        networks = [prefix]
        if c.ff == "moe":
            p[f"{prefix}.router.weight"] = matrix(c.experts, c.d_model)
            networks = [f"{prefix}.experts.{e}" for e in range(c.experts)]
        for network in networks:
            for name, rows, cols in [("fc1", outputs, c.d_model), ("fc2", c.d_model, width)]:
                p[f"{network}.{name}.weight"] = matrix(rows, cols)
                p[f"{network}.{name}.bias"] = 0.1 * torch.randn(rows)
        norm(prefix)

    def norm(prefix):
        p[f"{prefix}.norm.weight"] = 1 + 0.1 * torch.randn(c.d_model)
        p[f"{prefix}.norm.bias"] = 0.1 * torch.randn(c.d_model)

    def matrix(rows, cols):
        return (2 * torch.rand(rows, cols) - 1) * math.sqrt(6 / (rows + cols))

    def embedding(rows):
        return torch.randn(rows, c.d_model) * c.d_model**-0.5

    p = {"embed.weight": embedding(V)}
    if c.tie != "all":
        p["encoder.embed.weight"] = embedding(V)
    if c.tie == "none":
        p["output.weight"] = embedding(V)
    if c.position == "learned":
        for stack in ["encoder", "decoder"]:
            p[f"{stack}.position.weight"] = embedding(c.max_length)
    for n in range(c.encoder_layers):
        attention(f"encoder.layers.{n}.self_attn", True)
        feed_forward(f"encoder.layers.{n}.ff")
    for n in range(c.decoder_layers):
        attention(f"decoder.layers.{n}.self_attn", True)
        attention(f"decoder.layers.{n}.cross_attn", False)
        feed_forward(f"decoder.layers.{n}.ff")
    if c.norm == "pre":
        norm("encoder")
        norm("decoder")
    return {name: x.float().double().requires_grad_() for name, x in p.items()}


def angles(positions, d):
    """Of each position [positions, d/2]: sinusoid's and rope's."""
    position = torch.arange(positions, dtype=torch.float64)[:, None]
    return position / 10000 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)


def rotate(x):
    """Rotary positions of queries or keys [heads, positions, width]."""
    even, odd = x[:, :, 0::2], x[:, :, 1::2]
    angle = angles(x.shape[1], x.shape[2])
    turned = [even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()]
    return torch.stack(turned, dim=3).reshape(x.shape)


class Model:
    """A configuration with its parameters; one sentence at a time."""

    def __init__(self, p, c=PAPER):
        self.p, self.c = p, c
        self.seen = {}  # attention weights of each sub-layer, [heads, queries, keys] by sentence

    def embed(self, stack, ids):
        table = self.p.get(f"{stack}.embed.weight", self.p["embed.weight"])
        x = table[ids] * math.sqrt(self.c.d_model)
        if self.c.position == "sinusoid":
            angle = angles(len(ids), self.c.d_model)
            x = x + torch.stack([angle.sin(), angle.cos()], dim=2).reshape(x.shape)
        if self.c.position == "learned":
            x = x + self.p[f"{stack}.position.weight"][: len(ids)]
        return x

    def linear(self, name, x):
        return F.linear(x, self.p[f"{name}.weight"], self.p.get(f"{name}.bias"))

    def norm(self, prefix, x):
        gain, bias = self.p[f"{prefix}.norm.weight"], self.p[f"{prefix}.norm.bias"]
        return F.layer_norm(x, [self.c.d_model], gain, bias, EPSILON)

    def sublayer(self, prefix, x, f):
        if self.c.norm == "pre":
            return x + f(self.norm(prefix, x))
        return self.norm(prefix, x + f(x))

    def final(self, stack, x):
        return self.norm(stack, x) if self.c.norm == "pre" else x

    def attention(self, prefix, x, memory, causal):
        """memory: None for self-attention."""

        def heads(name, rows, n):
            rows = self.linear(f"{prefix}.{name}", rows)
            return rows.reshape(len(rows), n, -1).transpose(0, 1)

        def attend(x):
            keys = x if memory is None else memory
            n, kv = self.c.heads, head_shape(self.c)[0]
            q = heads("q_proj", x, n)
            k = heads("k_proj", keys, kv).repeat_interleave(n // kv, dim=0)
            v = heads("v_proj", keys, kv).repeat_interleave(n // kv, dim=0)
            if self.c.position == "rope" and memory is None:
                q, k = rotate(q), rotate(k)
            o = self.weigh(prefix, q, k, v, causal, memory is None)
            o = o.transpose(0, 1).reshape(len(x), -1)
            return self.linear(f"{prefix}.out_proj", o)

        return self.sublayer(prefix, x, attend)

    def see(self, prefix, weights):
        self.seen.setdefault(prefix, []).append(weights)
        return weights

    def weigh(self, prefix, q, k, v, causal, self_attention):
        """The output of the heads, of queries, keys and values [heads, positions, width]."""
        if self.c.attention == "linear":
            affinity = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(1, 2)
            if causal:
                affinity = affinity.tril()
            return self.see(prefix, affinity / affinity.sum(2, keepdim=True)) @ v
        scores = self.scores(prefix, q, k)
        if causal:
            scores += torch.full(scores.shape[1:], -math.inf).triu(1)
        if self_attention:
            return self.by_distance(prefix, q, v, scores)
        return self.see(prefix, scores.softmax(2)) @ v

    def scores(self, prefix, q, k):
        if self.c.attention == "additive":
            compared = torch.tanh(q[:, :, None] + k[:, None])
            return torch.einsum("hc,hijc->hij", self.p[f"{prefix}.additive.weight"], compared)
        return q @ k.transpose(1, 2) / math.sqrt(q.shape[2])

    def by_distance(self, prefix, q, v, scores):
        """The output of self-attention, where scores and values may depend on the distance."""
        c, n = self.c, q.shape[1]
        distance = torch.arange(n)[None] - torch.arange(n)[:, None]  # key - query
        row = distance.clamp(-RELATIVE_CLIP, RELATIVE_CLIP) + RELATIVE_CLIP
        if c.position == "alibi":
            head = torch.arange(1, c.heads + 1, dtype=torch.float64)
            scores = scores - (2 ** (-8 * head / c.heads))[:, None, None] * distance.abs()
        if c.position == "relative":
            keys = self.p[f"{prefix}.relative_k.weight"][row]
            scores = scores + torch.einsum("hic,ijc->hij", q, keys) / math.sqrt(q.shape[2])
        if c.attention == "window":
            first = torch.arange(n) < c.window_global
            seen = (distance.abs() <= c.window) | first[None] | first[:, None]
            scores = scores.masked_fill(~seen, -math.inf)
        weights = self.see(prefix, scores.softmax(2))
        o = weights @ v
        if c.position == "relative":
            values = self.p[f"{prefix}.relative_v.weight"][row]
            o = o + torch.einsum("hij,ijc->hic", weights, values)
        return o

    def feed_forward(self, prefix, x):
        def swiglu(z):
            gate, up = z.chunk(2, dim=1)
            return F.silu(gate) * up

        def network(prefix, x):
            return self.linear(f"{prefix}.fc2", f(self.linear(f"{prefix}.fc1", x)))

        def experts(x):
            p, k = self.linear(f"{prefix}.router", x).softmax(1), self.c.experts_per_token
            gates = torch.zeros_like(p).scatter(1, p.topk(k).indices, 1) * p
            if k > 1:
                gates = gates / gates.sum(1, keepdim=True)
            outputs = [network(f"{prefix}.experts.{e}", x) for e in range(self.c.experts)]
            return sum(gates[:, e : e + 1] * y for e, y in enumerate(outputs))

        f = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "swiglu": swiglu}[self.c.activation]
        dense = self.c.ff == "dense"
        return self.sublayer(prefix, x, (lambda x: network(prefix, x)) if dense else experts)

    def encode(self, src):
        x = self.embed("encoder", src)
        for n in range(self.c.encoder_layers):
            x = self.attention(f"encoder.layers.{n}.self_attn", x, None, False)
            x = self.feed_forward(f"encoder.layers.{n}.ff", x)
        return self.final("encoder", x)

    def logits(self, src, tgt_in):
        memory, x = self.encode(src), self.embed("decoder", tgt_in)
        for n in range(self.c.decoder_layers):
            x = self.attention(f"decoder.layers.{n}.self_attn", x, None, True)
            x = self.attention(f"decoder.layers.{n}.cross_attn", x, memory, False)
            x = self.feed_forward(f"decoder.layers.{n}.ff", x)
        output = self.p.get("output.weight", self.p["embed.weight"])
        return F.linear(self.final("decoder", x), output)


def logits_of(p, src, tgt_in):
    return Model(p).logits(src, tgt_in)


def draw_batch(lengths):
    def ids(n):
        return torch.cat([torch.randint(FIRST_WORD, V, (n - 1,)), torch.tensor([EOS])])

    return [(ids(s), ids(t)) for s, t in lengths]


def forward(model, batch):
    """Logits of all rows, smoothed loss, negative log-likelihood; both summed."""
    begin = torch.tensor([BOS])
    logits = torch.cat([model.logits(s, torch.cat([begin, t[:-1]])) for s, t in batch])
    target = torch.cat([t for _, t in batch])
    smoothed = F.cross_entropy(logits, target, label_smoothing=SMOOTHING, reduction="sum")
    return logits, smoothed, F.cross_entropy(logits, target, reduction="sum")


def adam_steps(p, batches):
    """The gradient norm before clipping at each step; p is changed."""
    model = Model(p)
    optimizer = torch.optim.Adam(p.values(), betas=(0.9, 0.98), eps=1e-9)
    norms = []
    for step in range(1, STEPS + 1):
        batch = batches[(step - 1) % len(batches)]
        optimizer.param_groups[0]["lr"] = PAPER.d_model**-0.5 * min(step**-0.5, step * WARMUP**-1.5)
        optimizer.zero_grad()
        (forward(model, batch)[1] / sum(len(t) for _, t in batch)).backward()
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


def describe(p, batches, c=PAPER):
    """What a golden file of a model has: parameters, batches, and of batch 0 what the model gives."""
    logits, smoothed, nll = forward(Model(p, c), batches[0])
    smoothed.backward()
    out = dict(p)
    for n, batch in enumerate(batches):
        out[f"batch.{n}.src_len"] = torch.tensor([len(s) for s, _ in batch])
        out[f"batch.{n}.tgt_len"] = torch.tensor([len(t) for _, t in batch])
        out[f"batch.{n}.src"] = torch.cat([s for s, _ in batch])
        out[f"batch.{n}.tgt"] = torch.cat([t for _, t in batch])
    out["logits"], out["loss"] = logits, torch.stack([smoothed, nll])
    return out | {f"grad.{name}": x.grad for name, x in p.items()}


def main():
    torch.manual_seed(1)
    here = Path(__file__).parent
    p = parameters()
    batches = [draw_batch(lengths) for lengths in BATCHES]
    out = describe(p, batches)
    save(here / "model.safetensors", out)

    norms = adam_steps(p, batches)
    bites = sum(n > CLIP for n in norms)
    assert 0 < bites < STEPS, "clipping should bite in some steps and not in others"
    save(here / "adam.safetensors", p | {"norm": torch.tensor(norms)})
    smoothed, nll = out["loss"].tolist()
    print(f"loss {smoothed:.6f}, nll {nll:.6f}; clipped {bites} of {STEPS} steps:")
    print(" ".join(f"{n:.3f}" for n in norms))


if __name__ == "__main__":
    main()
