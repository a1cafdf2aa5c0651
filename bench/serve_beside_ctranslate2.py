#!/usr/bin/env python3
"""Throughput and latency of `heed serve` and of CTranslate2 behind a server in Python, in one run.

    python3 bench/serve_beside_ctranslate2.py [--build build] [--lines FILE] [--clients 64]
                                              [--requests 600] [--rounds 2]

Needs: pip install ctranslate2 numpy aiohttp sentencepiece. Both have int8 weights of the shape of
the default model and its vocabulary; CTranslate2's are random, so every translation is made exactly
OUT tokens long. Both go from text to text over HTTP, beam 4, and get the same requests from the
same clients (tests/serve_load.c): as many at once as there are clients, then at random times, at
0.8 of the rate at which CTranslate2 answered them.

The server in Python batches as such servers do: a request waits WAIT seconds for others, and at
most BATCH of them are translated together, while the next batch gathers. CTranslate2 runs in each
of WAYS, and the best counts.
"""
import argparse
import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import beside_ctranslate2 as beside

OUT, BEAM, BATCH, WAIT = 32, 4, 32, 0.005
WAYS = {"1 worker of 2 threads": (1, 2), "2 workers of 1 thread": (2, 1)}
MODEL = Path("models/default")

# ---- CTranslate2 behind aiohttp ----


def make_model(folder):
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(str(MODEL / "vocab.model"))
    config = json.loads((MODEL / "config.json").read_text())
    beside.D, beside.FF, beside.HEADS = config["d_model"], config["d_ff"], config["heads"]
    beside.LAYERS, beside.V = config["encoder_layers"], config["vocab_size"]
    if (folder / "model.bin").exists():
        return
    spec = beside.make_spec([pieces.id_to_piece(i) for i in range(beside.V)])
    spec.validate()
    spec.optimize(quantization="int8")
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


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
            pieces.encode(texts, out_type=str),
            beam_size=BEAM,
            min_decoding_length=OUT,
            max_decoding_length=OUT,
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
    """Requests a second, and the median and 99th percentile of the latency in milliseconds."""
    command = [f"{args.build}/tests/serve_load", str(port), "/v1/translate", str(args.clients), str(rate)]
    done = subprocess.run(command, input="\n".join(bodies), capture_output=True, text=True, check=True)
    good, all_, rate, p50, p99 = re.match(
        r"(\d+) of (\d+) in .* s, ([\d.]+) a second; p50 ([\d.]+) ms, p99 ([\d.]+) ms", done.stderr
    ).groups()
    if good != all_:
        sys.exit(f"{good} of {all_} requests were answered: {done.stdout[:200]}")
    return float(rate), float(p50), float(p99)


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default="build")
    parser.add_argument("--lines", default="../shared/data/multi30k/test_2016_flickr.en")
    parser.add_argument("--models", default="build/beside_ctranslate2")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--serve", nargs=4, metavar=("FOLDER", "PORT", "WORKERS", "THREADS"))
    args = parser.parse_args()
    if args.serve:
        return serve(args.serve[0], *map(int, args.serve[1:]))
    folder = Path(args.models) / "default-shape"
    make_model(folder)
    lines = Path(args.lines).read_text().splitlines()
    # A translation that repeats itself is searched for once more, unless the request has this option.
    fixed = {"target": "de", "source": "en", "beam": BEAM, "no_repeat_ngram": 1000}
    fixed |= {"min_length": OUT - 1, "max_length": OUT}
    bodies = [json.dumps({"text": lines[i % len(lines)], **fixed}) for i in range(args.requests)]

    servers = {"heed": [f"{args.build}/heed", "serve", "--quiet", "--model", str(MODEL), "--port"]}
    ports = {"heed": 18080}
    for i, (name, (workers, threads)) in enumerate(WAYS.items()):
        ports[name] = 18081 + i
        servers[name] = [sys.executable, __file__, "--serve", str(folder)]
    best = {}
    for name, command in servers.items():
        last = [] if name == "heed" else [str(n) for n in WAYS[name]]
        process = subprocess.Popen(command + [str(ports[name])] + last)
        try:
            wait_until_ready(ports[name], bodies[0])
            load(args, ports[name], bodies[: 2 * args.clients], 0)
            found = [load(args, ports[name], bodies, 0) for _ in range(args.rounds)]
            best[name] = max(found)
        finally:
            process.kill()
            process.wait()
        rate, p50, p99 = best[name]
        print(
            f"{name}: {rate:.1f} requests/s, {rate * OUT:.0f} tokens/s, "
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms",
            flush=True,
        )
    theirs = max(WAYS, key=lambda name: best[name])
    rate = 0.8 * best[theirs][0]
    print(f"random arrivals, {rate:.1f} a second:")
    quantiles = {}
    for name in ("heed", theirs):
        last = [] if name == "heed" else [str(n) for n in WAYS[name]]
        process = subprocess.Popen(servers[name] + [str(ports[name])] + last)
        try:
            wait_until_ready(ports[name], bodies[0])
            _, p50, p99 = quantiles[name] = load(args, ports[name], bodies, rate)
        finally:
            process.kill()
            process.wait()
        print(f"{name}: p50 {p50:.0f} ms, p99 {p99:.0f} ms", flush=True)
    ours = best["heed"]
    print(
        f"heed beside {theirs}: throughput x{ours[0] / best[theirs][0]:.2f}, "
        f"p99 with all clients x{best[theirs][2] / ours[2]:.2f}, "
        f"p99 of random arrivals x{quantiles[theirs][2] / quantiles['heed'][2]:.2f}"
    )


if __name__ == "__main__":
    main()
