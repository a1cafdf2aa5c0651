"""Writes tests/golden/beam.safetensors: what a plain beam search finds with the golden model.

    python3 tests/golden/beam.py         (needs: pip install torch)

The model and its parameters are those of model.py, computed in double; the search is written from
the rules in src/decode/beam.h. It keeps no cache: each step computes the whole of every hypothesis.
The file is committed; neither the build nor the tests need this script.

Random weights are unsure of everything and repeat themselves, so three parameters are changed to
make lengths vary, from nothing to the longest allowed. The last norm's gain and bias are multiplied
by SHARPEN, which makes the model as sure of its tokens as a trained one. The end mark's embedding
moves along the slow waves of the position table, so that its logit rises with the position. And the
last norm's bias moves along that embedding, which shifts the end mark's logit by END everywhere.

beam.safetensors: the changed parameters under their names; src_len and src, without marks; options,
a row for each setup; and of setup N: N.count of each source; N.len, N.score and N.logp of each
output; N.ids and N.token_score of each token, the end mark included when there is one.
"""
import json
import struct
from pathlib import Path

import torch
from model import BOS, EOS, FIRST_WORD, V, logits_of, save

LENGTHS = [1, 2, 3, 5, 7, 9, 11, 13, 17, 19, 23, 31]
# width, nbest, longest output (0: by the source's length), alpha. Without a penalty and with a high
# one it matters when a search is over: too early loses outputs.
SETUPS = [
    (1, 1, 0, 0.6),
    (4, 1, 0, 0.6),
    (4, 4, 0, 0.6),
    (8, 1, 0, 0.6),
    (8, 4, 0, 0.6),
    (4, 4, 6, 0.6),
    (4, 1, 0, 1.5),
    (8, 4, 0, 1.5),
    (8, 4, 0, 0.0),
]
EXTRA, MAX_LENGTH = 50, 64
EMBED, LAST = "embed.weight", "decoder.layers.1.ff.norm"
SHARPEN, END = 2.5, -5
WAVES = {9: -2, 11: -2, 12: 2}  # columns of the table that rise, so signed, for some 30 positions
MARGIN = 5e-5  # no decision may hang on less, or f32 could take it otherwise


def load(path):
    """The f32 tensors of a file in double."""
    data = path.read_bytes()
    (n,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, t in json.loads(data[8 : 8 + n]).items():
        begin, end = (8 + n + at for at in t["data_offsets"])
        values = struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
        tensors[name] = torch.tensor(values, dtype=torch.float64).reshape(t["shape"])
    return tensors


def changed(p):
    """The parameters that differ from model.py's, rounded to f32 as they are stored."""
    embed = p[EMBED].clone()
    for column, by in WAVES.items():
        embed[EOS, column] += by
    end = embed[EOS]
    weight = SHARPEN * p[f"{LAST}.weight"]
    bias = SHARPEN * p[f"{LAST}.bias"] + END * end / end.dot(end)
    new = {EMBED: embed, f"{LAST}.weight": weight, f"{LAST}.bias": bias}
    return {name: x.float().double() for name, x in new.items()}


class Hypothesis:
    def __init__(self, ids=(), token_score=()):
        self.ids, self.token_score = list(ids), list(token_score)
        self.logp = sum(self.token_score)
        self.ended = self.ids[-1:] == [EOS]

    def followed_by(self, token, score):
        return Hypothesis(self.ids + [token], self.token_score + [score])

    def score(self, alpha):
        return self.logp / penalty(len(self.ids), alpha)


def penalty(n, alpha):
    return ((5 + n) / 6) ** alpha


def next_scores(p, src, h):
    logits = logits_of(p, torch.tensor(src + [EOS]), torch.tensor([BOS] + h.ids))
    return logits[-1].log_softmax(0).tolist()


def search(p, src, width, nbest, longest, alpha):
    """The nbest outputs, best first, and the smallest difference that any decision hung on."""
    longest = longest or min(len(src) + 1 + EXTRA, MAX_LENGTH)
    live, done, margins = [Hypothesis()], [], []
    for _ in range(longest):
        candidates = []
        for h in live:
            candidates += [h.followed_by(v, s) for v, s in enumerate(next_scores(p, src, h))]
        candidates.sort(key=lambda h: -h.logp)
        live = []
        for at, h in enumerate(candidates):
            if len(live) == width:
                margins.append(candidates[at - 1].logp - h.logp)
                break
            (done if h.ended else live).append(h)
        done = sorted(done, key=lambda h: -h.score(alpha))[:width]
        if not live or len(done) == width:
            break
        if len(done) >= nbest:
            beaten = done[nbest - 1].score(alpha) - live[0].logp / penalty(longest, alpha)
            margins.append(abs(beaten))
            if beaten >= 0:
                break
    else:
        done += live  # cut: behind those that ended
    for a, b in zip(done[:nbest], done[1:]):
        if a.ended == b.ended:
            margins.append(a.score(alpha) - b.score(alpha))
    return done[:nbest], min(margins)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    here = Path(__file__).parent
    p = load(here / "model.safetensors")
    out = changed(p)
    p |= out
    sources = [torch.randint(FIRST_WORD, V, (n,)).tolist() for n in LENGTHS]
    out["src_len"] = torch.tensor(LENGTHS)
    out["src"] = torch.tensor(sum(sources, []))
    out["options"] = torch.tensor(SETUPS)
    for n, setup in enumerate(SETUPS):
        found = [search(p, src, *setup) for src in sources]
        outputs = [h for hs, _ in found for h in hs]
        values = {
            "count": [len(hs) for hs, _ in found],
            "len": [len(h.ids) for h in outputs],
            "score": [h.score(setup[3]) for h in outputs],
            "logp": [h.logp for h in outputs],
            "ids": sum((h.ids for h in outputs), []),
            "token_score": sum((h.token_score for h in outputs), []),
        }
        out |= {f"{n}.{k}": torch.tensor(v, dtype=torch.float64) for k, v in values.items()}
        margin = min(m for _, m in found)
        lengths = " ".join(f"{len(h.ids)}{'' if h.ended else '(cut)'}" for h in outputs)
        print("beam %d, %d best, longest %d, alpha %g:" % setup, f"margin {margin:.1e}")
        print("   lengths", lengths)
        assert margin > MARGIN, "a decision hangs on too little"
    save(here / "beam.safetensors", out)


if __name__ == "__main__":
    main()
