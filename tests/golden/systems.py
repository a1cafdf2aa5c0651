"""Writes tests/golden/score/systems.h: what sacreBLEU says about the translations beside it.

    python3 tests/golden/systems.py        (needs: pip install sacrebleu regex numpy)

german.* and chinese.* are two references and the output of three systems, one sentence a line:
beam is heed's default model, sampled samples from it, and spoiled is another sample with lines that
are empty, in capitals, far too long or in another order. The sentences were written for this test. The numbers are
scores of the corpus by every metric, with one and two references, in both cases; scores of the
sentences; and paired bootstrap resampling of the three systems. Edits of random words of one letter
show which shifts TER tries and which of two equal ones it takes.
"""
import random
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

DIRECTORY = Path(__file__).parent / "score"
CORPORA = {"german": "13a", "chinese": "zh"}
SYSTEMS = ["beam", "sampled", "spoiled"]
METRICS = ["BLEU", "CHRF", "CHRFPP", "TER"]


def lines(name):
    return (DIRECTORY / name).read_text(encoding="utf-8").split("\n")[:-1]


def metric(name, tokenize, lower, sentence=False):
    if name == "BLEU":
        return BLEU(tokenize=tokenize, lowercase=lower, effective_order=sentence)
    if name == "TER":
        return TER()
    return CHRF(lowercase=lower, word_order=2 if name == "CHRFPP" else 0)


def how(corpus, refs, name, tokenize, lower):
    return f'"{corpus}", {refs}, HEED_METRIC_{name}, "{tokenize}", {str(lower).lower()}'


def corpus_scores(corpus, ref):
    for refs in 1, 2:
        for lower in False, True:
            for name in METRICS:
                tokenizers = ["13a", "zh", "intl", "char", "none"] if name == "BLEU" else ["none"]
                for tokenize in tokenizers:
                    m = metric(name, tokenize, lower)
                    found = [m.corpus_score(lines(f"{corpus}.{s}"), ref[:refs]).score
                             for s in SYSTEMS]
                    values = ", ".join(map(repr, found))
                    yield f"{{{how(corpus, refs, name, tokenize, lower)}, {{{values}}}}}"


def sentence_scores(corpus, ref):
    for lower in False, True:
        for name in METRICS:
            m = metric(name, CORPORA[corpus], lower, sentence=True)
            found = [m.sentence_score(h, list(r)).score
                     for h, *r in zip(lines(f"{corpus}.spoiled"), *ref)]
            values = ", ".join(map(repr, found))
            yield f"{{{how(corpus, 2, name, CORPORA[corpus], lower)}, {{{values}}}}}"


def comparisons(corpus, ref):
    for name in METRICS:
        m = metric(name, CORPORA[corpus], False)
        named = [(s, lines(f"{corpus}.{s}")) for s in SYSTEMS]
        test = PairedTest(named, {name: m}, ref, test_type="bs", n_samples=1000)
        results = [v for k, v in test()[1].items() if k != "System"][0]
        values = ", ".join(f"{{{r.score!r}, {float(r.mean)!r}, {float(r.ci)!r}, "
                           f"{1.0 if r.p_value is None else r.p_value!r}}}" for r in results)
        yield f"{{{how(corpus, 2, name, CORPORA[corpus], False)}, {{{values}}}}}"


def edits():
    draw = random.Random(1)
    for i in range(120):
        letters, longest = "abcdefghijkl"[:2 + i % 11], 6 + i % 50
        hyp, ref = ([draw.choice(letters) for _ in range(draw.randint(1, longest))] for _ in "hr")
        if i % 3 == 0:
            ref = hyp[len(hyp) // 2:] + hyp[:len(hyp) // 3]
        if i >= 108:  # as many words inserted as the band of the edit distance is wide
            hyp = [draw.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(55)]
            n = 23 + i % 4
            new = [draw.choice("0123456789") for _ in range(n)]
            ref = new + hyp[:-n] if i % 2 else hyp[n:] + new
        score = TER().sentence_score(" ".join(hyp), [" ".join(ref)])
        yield f'    {{"{" ".join(hyp)}", "{" ".join(ref)}", {score.num_edits}}},'


def table(name, members, rows):
    yield "static const struct {"
    yield "    const char *corpus;"
    yield "    int refs;"
    yield "    enum heed_metric metric;"
    yield "    const char *tokenize;"
    yield "    bool lowercase;"
    yield f"    {members}"
    yield f"}} {name}[] = {{"
    for row in rows:
        yield f"    {row},"
    yield "};"
    yield ""


def main():
    refs = {c: [lines(f"{c}.ref1"), lines(f"{c}.ref2")] for c in CORPORA}

    def rows(of):
        return [row for c in CORPORA for row in of(c, refs[c])]

    longest = max(len(r[0]) for r in refs.values())
    out = [
        "/*",
        f" * systems.h - written by tests/golden/systems.py with sacreBLEU {sacrebleu.__version__}.",
        " */",
        "/* clang-format off */",
        f"enum {{ SYSTEMS = {len(SYSTEMS)}, LINES_MAX = {longest} }};",
        "",
        *table("corpus_scores", "double value[SYSTEMS];", rows(corpus_scores)),
        *table("sentence_scores", "double value[LINES_MAX]; /* of the spoiled one */",
               rows(sentence_scores)),
        *table("comparisons", "struct { double score, mean, interval, p; } of[SYSTEMS];",
               rows(comparisons)),
        "static const struct {",
        "    const char *hyp, *ref;",
        "    long edits;",
        "} edits[] = {",
        *edits(),
        "};",
        "",
    ]
    (DIRECTORY / "systems.h").write_text("\n".join(out), encoding="ascii")


if __name__ == "__main__":
    main()
