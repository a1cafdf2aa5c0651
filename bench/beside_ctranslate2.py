#!/usr/bin/env python3
"""Translation speed and memory of heed and CTranslate2 on the same work, in one run.

    python3 bench/beside_ctranslate2.py [--bench build/benchmarks/bench_translate]
                                        [--models build/beside_ctranslate2] [--rounds 7]
                                        [--device cpu] [--cells 1x1,4x32]

Needs: pip install ctranslate2 numpy. The work: the paper's base model with random weights and
32,000 pieces, 28 source tokens with the end mark, exactly 32 output tokens; beams 1 and 4, batches
of 1, 8 and 32, or the cells BEAMxBATCH that are given. CTranslate2 gets min_decoding_length =
max_decoding_length = 32; bench_translate forbids the end mark before 32 tokens and cuts there. Both
go from tokens to tokens.

Each is measured with 1 thread, with 2 threads, and as two processes of 1 thread at once. Every
measurement is a process of its own (so that its peak memory is known) that translates one batch to
warm up and then a batch whenever it is told to; two processes are told at the same time, and their
tokens/s are added. Best of the rounds. CTranslate2's peak memory includes Python's, some 30 MiB.
Its settings in the environment, such as CT2_USE_MKL=1, are handed on: CT2_FORCE_CPU_ISA=AVX2
holds it to AVX2, as --device cpu:avx2 does heed.

Prints a table and, for each weights of heed's and of CTranslate2's, the ratio of the best ways.
Weights that heed does not have (yet) are left out, with its reason.
"""
import argparse
import os
import subprocess
import sys
from pathlib import Path

SRC, OUT = 28, 32
D, FF, HEADS, LAYERS, V = 512, 2048, 8, 6, 32000
BEAMS, BATCHES = [1, 4], [1, 8, 32]
CELLS = [(beam, batch) for beam in BEAMS for batch in BATCHES]
WAYS = {"1 thread": (1, 1), "2 threads": (2, 1), "2 processes": (1, 2)}  # threads, processes
TYPES = ["int8", "float32"]  # CTranslate2's
WEIGHTS = ["f32", "bf16", "int8"]  # heed's


# ---- CTranslate2: the model, and the process that translates ----


def import_ctranslate2():
    sys.modules["torch"] = None  # it would be imported if it is there, and count as memory
    import ctranslate2

    return ctranslate2


def make_spec(words=None):
    import numpy as np

    ct2 = import_ctranslate2()
    rng = np.random.default_rng(1)

    def linear(spec, rows, cols, bias=False):
        bound = (6 / (rows + cols)) ** 0.5
        spec.weight = rng.uniform(-bound, bound, (rows, cols)).astype(np.float32)
        if bias:
            spec.bias = np.zeros(rows, np.float32)

    def norm(spec):
        spec.gamma, spec.beta = np.ones(D, np.float32), np.zeros(D, np.float32)

    def attention(spec, shapes):
        for part, rows in zip(spec.linear, shapes):
            linear(part, rows, D)
        norm(spec.layer_norm)

    def feed_forward(spec):
        linear(spec.linear_0, FF, D, True)
        linear(spec.linear_1, D, FF, True)
        norm(spec.layer_norm)

    spec = ct2.specs.TransformerSpec.from_config((LAYERS, LAYERS), HEADS, pre_norm=False)
    embed = rng.normal(0, D**-0.5, (V, D)).astype(np.float32)
    spec.encoder.embeddings[0].weight = embed
    spec.decoder.embeddings.weight = embed
    spec.decoder.projection.weight = embed  # the same values are stored once
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = True
    for layer in spec.encoder.layer:
        attention(layer.self_attention, [3 * D, D])
        feed_forward(layer.ffn)
    for layer in spec.decoder.layer:
        attention(layer.self_attention, [3 * D, D])
        attention(layer.attention, [D, 2 * D, D])
        feed_forward(layer.ffn)
    words = words or ["<unk>", "<s>", "</s>"] + [f"w{i}" for i in range(3, V)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-6
    return spec


def write_models(folder):
    for kind in TYPES:
        target = folder / kind
        if (target / "model.bin").exists():
            continue
        spec = make_spec()
        spec.validate()
        spec.optimize(quantization=kind)
        target.mkdir(parents=True, exist_ok=True)
        spec.save(str(target))


def peak_mib():
    """Of this process; getrusage would count its parent's as well."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024


def work(model, kind, threads, beam, batch):
    """As bench_translate --paced: a batch for each line of the standard input."""
    import random
    import time

    ct2 = import_ctranslate2()
    translator = ct2.Translator(model, compute_type=kind, inter_threads=1, intra_threads=threads)
    random.seed(1)
    src = [[f"w{random.randrange(3, V)}" for _ in range(SRC - 1)] for _ in range(batch)]

    def translate():
        began = time.perf_counter()
        found = translator.translate_batch(
            src, beam_size=beam, min_decoding_length=OUT, max_decoding_length=OUT
        )
        seconds = time.perf_counter() - began
        assert all(len(r.hypotheses[0]) == OUT for r in found)
        return seconds

    translate()
    print("ready", flush=True)
    while sys.stdin.readline():
        print(f"{translate() * 1e3:.3f}", flush=True)
    print(f"peak memory {peak_mib():.0f} MiB", flush=True)


# ---- measuring ----


class Refused(Exception):
    pass


class Worker:
    def __init__(self, command):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def line(self):
        line = self.process.stdout.readline().strip()
        if not line:
            raise Refused((self.process.communicate()[1].strip() or "failed").splitlines()[-1])
        return line

    def wait_ready(self):
        while self.line() != "ready":
            pass

    def start(self):
        self.process.stdin.write("\n")

    def close(self):
        """Its peak memory in MiB."""
        self.process.stdin.close()
        text = self.process.stdout.read()
        self.process.wait()
        return float(text.split("peak memory ")[1].split()[0])


def measure(command, processes, batch, rounds):
    """The best round: tokens/s of all processes, ms of the slowest; and the memory of all."""
    workers = [Worker(command) for _ in range(processes)]
    for worker in workers:
        worker.wait_ready()
    best = (0, 0)
    for _ in range(rounds):
        for worker in workers:
            worker.start()
        times = [float(worker.line()) for worker in workers]
        best = max(best, (sum(batch * OUT / ms * 1e3 for ms in times), max(times)))
    return (*best, sum(worker.close() for worker in workers))


def theirs(folder, kind, threads, beam, batch):
    return [sys.executable, __file__, "--work", folder / kind, kind, threads, beam, batch]


def ours(bench, device, weights, threads, beam, batch):
    size = ["--threads", threads, "--beam", beam, "--batch", batch]
    return [bench, "--device", device, "--weights", weights, *size, "--paced"]


# ---- the table ----


def row(name, values):
    cells = [name.ljust(32)] + [value.rjust(20) for value in values]
    print("|", " | ".join(cells), "|", flush=True)


def rows_of(results, name):
    for way in WAYS:
        cells = [results[cell][way] for cell in CELLS]
        row(f"{name}, {way}", [f"{rate:.0f} ({ms:.0f} ms, {mib:.0f})" for rate, ms, mib in cells])


def best(results, cell):
    return max(rate for rate, _, _ in results[cell].values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bench", type=Path, default="build/benchmarks/bench_translate")
    parser.add_argument("--models", type=Path, default="build/beside_ctranslate2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cells", default=",".join(f"{b}x{n}" for b, n in CELLS))
    a = parser.parse_args()
    CELLS[:] = [tuple(map(int, cell.split("x"))) for cell in a.cells.split(",")]
    # In a process of its own: a child's peak memory would begin with what this one holds.
    subprocess.run([sys.executable, __file__, "--write", a.models], check=True)

    commands = {f"CTranslate2 {kind}": (theirs, a.models, kind) for kind in TYPES}
    bench = a.bench.resolve(), a.device
    commands |= {f"heed {weights}": (ours, *bench, weights) for weights in WEIGHTS}
    results = {name: {cell: {} for cell in CELLS} for name in commands}
    # Cell by cell, so that what is compared is measured close together.
    for cell in CELLS:
        for name, (make, *what) in list(commands.items()):
            for way, (threads, processes) in WAYS.items():
                command = make(*what, threads, *cell)
                try:
                    results[name][cell][way] = measure(command, processes, cell[1], a.rounds)
                except Refused as reason:
                    print(f"{name}: {reason}", flush=True)
                    del commands[name], results[name]
                    break

    print(f"\nOutput tokens/s (ms of a batch, peak MiB); {os.cpu_count()} cores\n")
    row("", [f"beam {beam}, batch {batch}" for beam, batch in CELLS])
    row("---", ["---:"] * len(CELLS))
    for name, result in results.items():
        rows_of(result, name)
    for our in [name for name in results if name.startswith("heed")]:
        for their in [name for name in results if not name.startswith("heed")]:
            ratios = [best(results[our], cell) / best(results[their], cell) for cell in CELLS]
            row(f"{our} / {their}", [f"{ratio:.2f}" for ratio in ratios])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_models(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:4], *map(int, sys.argv[4:7]))
    else:
        main()
