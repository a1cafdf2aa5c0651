"""Writes tests/golden/score/cases.h: sentence pairs and what sacreBLEU says about them.

    python3 tests/golden/score.py        (needs: pip install sacrebleu regex)

The texts live here; the header is committed, so that the tests need no Python. Each case is scored
as one corpus, and the numbers are written with all their digits.
"""
from pathlib import Path

import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

TOKENIZERS = ["13a", "zh", "intl", "char", "none"]

# name: [(hypothesis, reference), ...]; bytes are not UTF-8 and decode to U+FFFD.
CASES = {
    "english": [
        ("The cat is sitting on the mat.", "The cat sat on the mat."),
        ("Two boys, one dog and a ball; that's all!", "Two boys, a dog and a ball: that is all."),
        ("\"Don't shout,\" she said (quietly).", "\"Do not shout\", she said (quietly)."),
        ("It works ... mostly..", "It works... mostly."),
        (".Net is not a file,name", ". Net is not a file, name"),
    ],
    "german": [
        ("Der Hund läuft schnell über die grüne Wiese.", "Ein Hund läuft über die grüne Wiese."),
        ("Das Straßencafé öffnet um 9 Uhr früh.", "Das Straßencafé öffnet früh, um 9 Uhr."),
        ("„Größe zählt nicht“, sagte er.", "»Größe zählt nicht«, sagte er."),
        ("Die Ein- und Ausgabe kostet 5€.", "Die Ein- und Ausgabe kostet 5 €."),
    ],
    "chinese": [
        ("今天天气很好,我们去公园散步。", "今天天气真好，我们去公园走走。"),
        ("他在2018年买了3台GPU服务器。", "他于2018年购买了3台 GPU 服务器。"),
        ("\u3000“注意力”就是你所需要的一切……", "“注意力”就是一切——你所需要的。"),
        ("价格是１２．５元（含税）", "价格为12.5元(含税)"),
        ("𠮷野家在这里", "𠮷野家就在这里"),
    ],
    "emoji": [
        ("I ❤️ this 😀😀 song 🎵!", "I ❤️ this 😀 song 🎵🎵!"),
        ("Well done 👍🏽 team 👩‍👩‍👧", "Well done 👍🏻 team 👩‍👩‍👧!"),
        ("→ left ← right ★", "→ right ← left ☆"),
    ],
    "numbers": [
        ("It costs $1,234.56, or 12.5% more.", "It cost $1,234.56 or 12,5 % more."),
        ("1990-1999 and 2000-, page 3-4.", "1990 - 1999 and 2000 -, page 3-4 ."),
        ("Version 1.2.3, released in 2018.", "version 1.2.3 released in 2018 ."),
        (".5 is ½ and ,7 is x² of Ⅳ or ٣.", "0.5 is ½ and 0,7 is x² of Ⅳ or ٣ ."),
        ("3.", "3"),
    ],
    "markup": [
        ("He said &quot;yes&quot; &amp; left", "He said \"yes\" & left"),
        ("&amp;quot; and &amp;lt;b&amp;gt;", "&quot; and <b>"),
        ("a &lt; b &gt; c <skipped>", "a < b > c"),
        ("<skip<skipped>ped>done & dusted;", "done & dusted ;"),
        ("AT&T; R&D", "AT &T; R & D"),
    ],
    "line ends": [
        ("an exam-\nple of a broken\nline-", "an example of a broken line-"),
        ("trailing blanks \t\r\n", "trailing blanks"),
        ("  .5 leading blanks", ".5 leading blanks"),
        ("odd\u00a0blanks\u2003and\u3000more\x1cof\x85them", "odd blanks and more of them"),
        ("zero\u200bwidth \ufeffmark", "zero\u200bwidth mark"),
    ],
    "marks": [
        ("{[(a)]} <b> c/d e\\f g_h i^j k|l ~m `n` #o @p *q +r =s", "{[( a )]} < b > c / d e \\ f"),
        ("a...,,b 1..2 3,,4 ,. 5,-6-,7", "a . . . , , b 1 . . 2 3 , , 4 , . 5 , - 6 - , 7"),
        ("wait—what? yes–no “so” ‘so’ «so» …", "wait — what ? yes – no “ so ” ‘ so ’ « so » …"),
        ("rock'n'roll it's o’clock", "rock ' n ' roll it 's o ’ clock"),
    ],
    "identical": [
        ("A man in a blue shirt is standing on a ladder.",) * 2,
        ("Ein Mann in einem blauen Hemd steht auf einer Leiter.",) * 2,
        ("一名穿蓝色衬衫的男子站在梯子上。",) * 2,
    ],
    "no match": [("abc def ghi jkl mno", "pqrs tuvw xyz zyx wvut"), ("aaaa", "bbbb")],
    "empty hypotheses": [
        ("", "This line was not translated."),
        ("The second line was translated.", "The second line was translated."),
        ("   ", "Nor was the third one."),
    ],
    "empty reference": [("something out of nothing", ""), ("a b c d e", "a b c d e")],
    "all empty": [("", ""), (" ", "\n")],
    "empty output": [("", "not a word"), ("", "came out")],
    "clipped": [("the the the the the the the", "the cat is on the mat"), ("aaaaaaa", "aaa")],
    "one word": [("yes", "yes")],
    "no long match": [("a b x c d y e f", "a b p c d q e f")],
    "longer": [("one two three four five six seven eight", "one two three four five six")],
    "not utf-8": [
        (b"caf\xe9 \xff\xfe au lait", "caf\ufffd \ufffd\ufffd au lait"),
        (b"cut \xe4\xb8 off \xf0\x9f\x98", "cut \ufffd off \ufffd"),
        (b"surrogate \xed\xa0\x80 and long \xc0\xaf", b"surrogate \xed\xa0\x80 or long \xc0\xaf"),
        (b"\xc3-\n\xa4 is not one letter", "ä is not one letter"),
    ],
}


def raw(text):
    return text if isinstance(text, bytes) else text.encode()


def decoded(text):
    return raw(text).decode("utf-8", errors="replace")


def c_string(text):
    """Printable ASCII as it is, all other bytes in octal, which always ends after three digits."""
    out = ""
    for byte in raw(text):
        char = chr(byte)
        if char in '"\\?':
            out += "\\" + char
        else:
            out += char if 32 <= byte < 127 else f"\\{byte:03o}"
    return f'"{out}"'


def score(pairs):
    hyp = [decoded(h) for h, _ in pairs]
    ref = [[decoded(r) for _, r in pairs]]
    for name in TOKENIZERS:
        s = BLEU(tokenize=name, force=True).corpus_score(hyp, ref)
        precisions = ", ".join(map(repr, s.precisions))
        yield f'{{"{name}", {s.score!r}, {{{precisions}}}, {s.bp!r}, {s.sys_len}, {s.ref_len}}}'
    yield f'{{"chrF", {CHRF().corpus_score(hyp, ref).score!r}, {{0}}, 0, 0, 0}}'


def main():
    out = [
        "/*",
        f" * cases.h - written by tests/golden/score.py with sacreBLEU {sacrebleu.__version__}.",
        " */",
        "/* clang-format off */",
        f"enum {{ PAIRS_MAX = {max(map(len, CASES.values()))}, SCORES = {len(TOKENIZERS) + 1} }};",
        "",
        "static const struct {",
        "    const char *name;",
        "    int n;",
        "    const char *hyp[PAIRS_MAX], *ref[PAIRS_MAX];",
        "    struct {",
        "        const char *name; /* a tokenizer of BLEU, or chrF */",
        "        double value, precision[4], brevity_penalty;",
        "        long hyp_len, ref_len;",
        "    } score[SCORES];",
        "} cases[] = {",
    ]
    for name, pairs in CASES.items():
        out += [f'    {{"{name}", {len(pairs)},']
        for side in (0, 1):
            texts = ",\n      ".join(c_string(pair[side]) for pair in pairs)
            out += [f"     {{{texts}}},"]
        scores = ",\n      ".join(score(pairs))
        out += [f"     {{{scores}}}}},"]
    out += ["};", ""]
    path = Path(__file__).with_suffix("") / "cases.h"
    path.write_text("\n".join(out), encoding="ascii")


if __name__ == "__main__":
    main()
