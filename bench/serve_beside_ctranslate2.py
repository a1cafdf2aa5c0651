#!/usr/bin/env python3
"""Throughput and latency of `heed serve` and of CTranslate2 behind a server in Python, in one run.

    python3 bench/serve_beside_ctranslate2.py [--build build] [--lines FILE] [--clients 64]
                                              [--requests 1000] [--rounds 3]

Needs: pip install ctranslate2 numpy aiohttp sentencepiece. Both run the default model, whose int8
weights are converted for CTranslate2, from text to text over HTTP, beam 4, and get the same requests
from the same clients (tests/serve_load.c): as many at once as there are clients, then at random
times, at 0.8 of the rate at which CTranslate2 answered them.

The server in Python batches as such servers do: a request waits WAIT seconds for others, and at
most BATCH of them are translated together, while the next batch gathers. Both run as one worker, or
session, of all threads and as two of one thread, and the best of each counts.
"""
import argparse
import asyncio
import json
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import beside_ctranslate2 as beside

BEAM, BATCH, WAIT, TARGET = 4, 32, 0.005, "de"
MODEL = Path("models/default")

# ---- the model ----


class Weights:
    """The tensors of an int8 model of heed as f32: docs/file-formats.md, smaller weights."""

    def __init__(self, path):
        import numpy as np

        raw = path.read_bytes()
        header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
        self.np, self.header, self.at = np, header, 0
        self.data = raw[8 + struct.unpack("<Q", raw[:8])[0] :]

    def vector(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.np.frombuffer(self.data[begin:end], self.np.float32).copy()

    def matrix(self, rows, cols):
        """The next of the matrices, which follow one another in panels of 16 rows."""
        np = self.np
        size = 16 * cols + 128
        panels = np.frombuffer(self.data, np.uint8, rows // 16 * size, self.at).reshape(-1, size)
        self.at += panels.size
        bytes_ = panels[:, : 16 * cols].view(np.int8).reshape(-1, cols // 4, 16, 4)
        scale = panels[:, 16 * cols : 16 * cols + 64].copy().view(np.float32)
        plain = bytes_.transpose(0, 2, 1, 3).reshape(rows, cols)
        return plain.astype(np.float32) * scale.reshape(rows, 1)


def sinusoids(np, length, width):
    """Sine on even, cosine on odd dimensions (paper 3.5)."""
    angle = np.arange(length)[:, None] / 10000 ** (np.arange(0, width, 2)[None, :] / width)
    return np.stack([np.sin(angle), np.cos(angle)], 2).reshape(length, width).astype(np.float32)


def make_model(folder):
    import sentencepiece

    ct2 = beside.import_ctranslate2()
    pieces = sentencepiece.SentencePieceProcessor(str(MODEL / "vocab.model"))
    config = json.loads((MODEL / "config.json").read_text())
    w, d, inner = Weights(MODEL / "model.safetensors"), config["d_model"], config["d_ff"]
    np, layers, size = w.np, config["encoder_layers"], config["vocab_size"]
    if (folder / "model.bin").exists():
        return

    def norm(spec, name):
        spec.gamma, spec.beta = w.vector(name + ".weight"), w.vector(name + ".bias")

    def attention(spec, name):
        q, k, v, out = (w.matrix(d, d) for _ in range(4))
        parts = [[q, k, v]] if len(spec.linear) == 2 else [[q], [k, v]]
        for linear, matrices in zip(spec.linear, parts + [[out]]):
            linear.weight = np.concatenate(matrices)
        norm(spec.layer_norm, name + ".norm")

    def feed_forward(spec, name):
        spec.linear_0.weight, spec.linear_1.weight = w.matrix(inner, d), w.matrix(d, inner)
        spec.linear_0.bias = w.vector(name + ".fc1.bias")
        spec.linear_1.bias = w.vector(name + ".fc2.bias")
        norm(spec.layer_norm, name + ".norm")

    spec = ct2.specs.TransformerSpec.from_config((layers, layers), config["heads"], pre_norm=False)
    embed = w.matrix(size, d)
    spec.encoder.embeddings[0].weight = embed
    spec.decoder.embeddings.weight = embed
    spec.decoder.projection.weight = embed
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = True
    for stack in (spec.encoder, spec.decoder):
        stack.position_encodings.encodings = sinusoids(np, config["max_length"], d)
    for i, layer in enumerate(spec.encoder.layer):
        attention(layer.self_attention, f"encoder.layers.{i}.self_attn")
        feed_forward(layer.ffn, f"encoder.layers.{i}.ff")
    for i, layer in enumerate(spec.decoder.layer):
        attention(layer.self_attention, f"decoder.layers.{i}.self_attn")
        attention(layer.attention, f"decoder.layers.{i}.cross_attn")
        feed_forward(layer.ffn, f"decoder.layers.{i}.ff")
    words = [pieces.id_to_piece(i) for i in range(size)]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = 1e-6
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


# ---- CTranslate2 behind aiohttp ----


def serve(folder, port, workers, threads):
    """The process that serves; it runs until it is killed."""
    import sentencepiece
    from aiohttp import web

    ct2 = beside.import_ctranslate2()
    pieces = sentencepiece.SentencePieceProcessor(str(MODEL / "vocab.model"))
    translator = ct2.Translator(
        folder, compute_type="int8", inter_threads=workers, intra_threads=threads
    )
    waiting = asyncio.Queue()

    def translate(texts):
        found = translator.translate_batch(
            [[f">>{TARGET}<<"] + pieces.encode(text, out_type=str) for text in texts],
            beam_size=BEAM,
            length_penalty=0.6,
        )
        return [pieces.decode(r.hypotheses[0]) for r in found]

    async def run_batches():
        loop = asyncio.get_running_loop()
        while True:
            batch = [await waiting.get()]
            end = loop.time() + WAIT
            while len(batch) < BATCH:
                try:
                    batch.append(await asyncio.wait_for(waiting.get(), end - loop.time()))
                except asyncio.TimeoutError:
                    break
            answers = await loop.run_in_executor(None, translate, [text for text, _ in batch])
            for (_, future), answer in zip(batch, answers):
                future.set_result(answer)

    async def answer(request):
        future = asyncio.get_running_loop().create_future()
        waiting.put_nowait(((await request.json())["text"], future))
        return web.json_response({"translations": [{"results": [{"text": await future}]}]})

    async def start(app):
        app["runners"] = [asyncio.create_task(run_batches()) for _ in range(workers)]

    app = web.Application()
    app.router.add_post("/v1/translate", answer)
    app.on_startup.append(start)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)


# ---- measuring ----


def load(args, port, bodies, rate):
    """Requests a second, median and 99th percentile of the latency in milliseconds, and answers."""
    program = f"{args.build}/tests/serve_load"
    command = [program, str(port), "/v1/translate", str(args.clients), str(rate)]
    done = subprocess.run(command, input="\n".join(bodies), capture_output=True, text=True, check=True)
    found = r"(\d+) of (\d+) in .* s, ([\d.]+) a second; p50 ([\d.]+) ms, p99 ([\d.]+) ms"
    good, all_, rate, p50, p99 = re.match(found, done.stderr).groups()
    if good != all_:
        sys.exit(f"{good} of {all_} requests were answered: {done.stdout[:200]}")
    answers = [json.loads(line.split("\t")[1]) for line in done.stdout.splitlines()]
    texts = [a["translations"][0]["results"][0]["text"] for a in answers]
    return float(rate), float(p50), float(p99), texts


def wait_until_ready(port, body):
    import http.client

    for _ in range(300):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("POST", "/v1/translate", body, {"Content-Type": "application/json"})
            if connection.getresponse().status == 200:
                return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"no server answers at port {port}")


def measure(args, command, port, bodies, rate, rounds):
    """Starts a server, and returns the best of some rounds."""
    process = subprocess.Popen(command)
    try:
        wait_until_ready(port, bodies[0])
        load(args, port, bodies[: 2 * args.clients], 0)
        return max(load(args, port, bodies, rate) for _ in range(rounds))
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--lines", default="../shared/data/multi30k/test_2016_flickr.en")
    parser.add_argument("--models", default="build/beside_ctranslate2")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", nargs=4, metavar=("FOLDER", "PORT", "WORKERS", "THREADS"))
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve[0], *map(int, args.serve[1:]))
    folder = Path(args.models) / "default"
    make_model(folder)
    lines = Path(args.lines).read_text().splitlines()
    fixed = {"source": "en", "target": TARGET, "beam": BEAM}
    bodies = [json.dumps({"text": lines[i % len(lines)], **fixed}) for i in range(args.requests)]

    port, commands = 18080, {}
    for sessions, threads in ((1, 2), (2, 1)):
        way = f"{sessions} of {threads} thread{'s' if threads > 1 else ''}"
        heed = [f"{args.build}/heed", "serve", "--quiet", "--model", str(MODEL), "--port", str(port)]
        commands["heed", way] = heed + ["--sessions", str(sessions)]
        theirs = [sys.executable, __file__, "--serve", str(folder), str(port)]
        commands["CTranslate2", way] = theirs + [str(sessions), str(threads)]
    best = {}
    for (name, way), command in commands.items():
        found = measure(args, command, port, bodies, 0, args.rounds)
        rate, p50, p99, _ = found
        print(f"{name}, {way}: {rate:.1f} a second, p50 {p50:.0f} ms, p99 {p99:.0f} ms", flush=True)
        if name not in best or found > best[name][0]:
            best[name] = found, way
    (ours, way), (theirs, their_way) = best["heed"], best["CTranslate2"]
    same = sum(a == b for a, b in zip(ours[3], theirs[3])) / len(bodies)
    rate = 0.8 * theirs[0]
    print(f"{same:.0%} of the translations are the same; random arrivals, {rate:.1f} a second:")
    late = {}
    for key in (("heed", way), ("CTranslate2", their_way)):
        _, p50, late[key[0]], _ = measure(args, commands[key], port, bodies, rate, 1)
        print(f"{key[0]}, {key[1]}: p50 {p50:.0f} ms, p99 {late[key[0]]:.0f} ms", flush=True)
    print(
        f"heed / CTranslate2: throughput x{ours[0] / theirs[0]:.2f}, p99 with all clients "
        f"x{theirs[2] / ours[2]:.2f}, p99 of random arrivals x{late['CTranslate2'] / late['heed']:.2f}"
    )


if __name__ == "__main__":
    main()
