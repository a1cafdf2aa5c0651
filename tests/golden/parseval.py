"""Writes tests/golden/score/parseval.h and the trees it is about, parseval.gold and parseval.found.

    pip download --no-deps allennlp==0.9.0        (its wheel holds the C source of EVALB)
    python3 tests/golden/parseval.py allennlp-0.9.0-py3-none-any.whl

The trees are written here; those found are changed at random: labels, constituents added and left
out, tags, and a few lines that EVALB takes for errors. The figures are EVALB's with COLLINS.prm.
"""
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

DIRECTORY = Path(__file__).parent / "score"
TREES = """
(TOP (S (NP-SBJ (DT The) (NN dog)) (VP (VBZ runs) (PP-LOC (IN over) (NP (DT the) (JJ green) (NN field)))) (. .)))
(TOP (S (NP-SBJ-1 (PRP She)) (VP (VBD wanted) (S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB leave) (ADVP-TMP (RB early)))))) (, ,) (. .)))
(TOP (SINV (`` ``) (S-TPC-2 (NP-SBJ (PRP It)) (VP (VBZ works))) (, ,) ('' '') (VP (VBD said) (SBAR (-NONE- 0) (S (-NONE- *T*-2)))) (NP-SBJ (DT the) (NN engineer)) (. .)))
(TOP (S (NP-SBJ (NP (NNP Ms.) (NNP Lee)) (, ,) (ADJP (NP (CD 61) (NNS years)) (JJ old)) (, ,)) (VP (VBD gave) (PRT (RP up)) (NP (PRP$ her) (NN seat))) (. .)))
(TOP (SBARQ (WHNP-1 (WP Who)) (SQ (VP (VBD took) (NP (NP (DT the) (NNS keys)) (PP (IN of) (NP (DT the) (NN house)))))) (. ?)))
(TOP (S (S (NP-SBJ (DT Both) (NNS teams)) (VP (VBD played) (ADVP-MNR (RB well)))) (: ;) (S (NP-SBJ (DT the) (NN wind)) (VP (VBD was) (ADJP-PRD (JJ strong)))) (. .)))
(TOP (FRAG (NP (NP (CD Two) (NNS women)) (PP (IN with) (NP (JJ red) (NNS umbrellas)))) (-LRB- -LRB-) (NP (NNP Berlin)) (-RRB- -RRB-)))
(TOP (NP (NP (NP (DT A) (NN price)) (PP (IN of) (NP (QP ($ $) (CD 4.5) (TO to) ($ $) (CD 5)) (-NONE- *U*)))) (PP (IN for) (NP (DT the) (NN book)))))
(TOP (S (NP-SBJ (NNP Anna) (CC and) (NNP Otto)) (VP (VP (VBD cooked) (NP (-NONE- *RNR*-1))) (CC and) (VP (VBD ate)) (NP-1 (DT the) (NN fish))) (. !)))
(IP (NP-SBJ (NR 上海) (NN 浦东)) (VP (ADVP (AD 近年)) (VP (VV 颁布) (AS 了) (NP-OBJ (NP (NN 经济)) (NP (NN 法规))))) (PU 。))
(S1 (S (NP (NNS Prices)) (VP (VBD rose) (ADVP (RB again)) (PP (IN in) (NP (NNP March)))) (. .)))
(TOP (X (X (X (NN yes))) (. .)))
""".strip().split("\n")
LABELS = ["NP", "VP", "PP", "S", "ADVP", "PRT", "NP-SBJ", "S=1", "TOP", "ADJP"]
KEPT_TAGS = {",", ":", "``", "''", ".", "-NONE-"}


def parse(text):
    tokens = re.findall(r"[()]|[^()\s]+", text)

    def node(at):
        label, at, children = tokens[at + 1], at + 2, []
        while tokens[at] != ")":
            child, at = node(at) if tokens[at] == "(" else (tokens[at], at + 1)
            children.append(child)
        return [label, children], at + 1

    return node(0)[0]


def show(tree):
    return f"({tree[0]} {' '.join(k if isinstance(k, str) else show(k) for k in tree[1])})"


def is_tag(tree):
    return isinstance(tree[1][0], str)


def change(tree, draw):
    if is_tag(tree):
        if tree[0] not in KEPT_TAGS and draw.random() < 0.08:
            tree[0] = draw.choice(["NN", "VB", "JJ"])
        return
    if draw.random() < 0.12:
        tree[0] = draw.choice(LABELS)
    children = []
    for child in tree[1]:
        change(child, draw)
        if not is_tag(child) and draw.random() < 0.12:
            children += child[1]
        elif draw.random() < 0.08:
            children.append([draw.choice(LABELS), [child]])
        else:
            children.append(child)
    if len(children) > 2 and draw.random() < 0.2:
        at = draw.randrange(len(children) - 1)
        children[at:at + 2] = [[draw.choice(LABELS), children[at:at + 2]]]
    tree[1] = children


def lines():
    draw = random.Random(4)
    for round in range(4):
        for i, text in enumerate(TREES):
            tree = parse(text)
            if round:
                change(tree, draw)
            found = show(tree)
            if round == 3:  # lines that are errors
                found = {1: "", 3: found.replace(" Lee)", " Li)"), 5: found.replace("(DT the)", ""),
                         7: "(TOP (. .))", 9: found.replace("(PU 。)", "")}.get(i, found)
            yield show(parse(text)), found


def evalb(wheel, gold, found):
    with tempfile.TemporaryDirectory() as scratch:
        with zipfile.ZipFile(wheel) as z:
            for name in "evalb.c", "COLLINS.prm":
                source = z.read(f"allennlp/tools/EVALB/{name}")
                Path(scratch, name).write_bytes(source)
        with open(Path(scratch, "COLLINS.prm"), "a", encoding="ascii") as f:
            f.write("\nDELETE_LABEL S1\n")
        subprocess.run(["cc", "-w", "-std=gnu89", "-o", "evalb", "evalb.c"], cwd=scratch, check=True)
        return subprocess.run([f"{scratch}/evalb", "-e", "10000", "-p", f"{scratch}/COLLINS.prm", gold,
                               found], check=True, capture_output=True, text=True).stdout


def main():
    files = [DIRECTORY / "parseval.gold", DIRECTORY / "parseval.found"]
    for path, column in zip(files, zip(*lines())):
        path.write_text("".join(line + "\n" for line in column), encoding="utf-8")
    out = evalb(sys.argv[1], *files)
    rows = [line.split() for line in out.split("\n") if re.match(r" *\d+ +\d+ +\d ", line)]
    summary = dict(re.findall(r"^(.*?) += +(\S+)$", out.split("-- len")[0], re.M))
    keys = ["Bracketing FMeasure", "Bracketing Precision", "Bracketing Recall", "Complete match",
            "Tagging accuracy", "Number of sentence", "Number of Valid sentence"]
    text = [
        "/*",
        " * parseval.h - written by tests/golden/parseval.py with EVALB and COLLINS.prm.",
        " */",
        "/* clang-format off */",
        "static const struct {",
        "    double f1, precision, recall, exact, tags;",
        "    long lines, valid;",
        f"}} parseval_total = {{{', '.join(summary[k] for k in keys)}}};",
        "",
        "static const struct {",
        "    int error;",
        "    double recall, precision;",
        "    long matched, gold, found;",
        "    double tags;",
        "} parseval_lines[] = {",
    ]
    for row in rows:
        _, _, status, recall, precision, matched, gold, found, _, _, _, tags = row
        text.append(f"    {{{int(status != '0')}, {recall}, {precision}, {matched}, {gold}, {found}, "
                    f"{tags}}},")
    text += ["};", ""]
    (DIRECTORY / "parseval.h").write_text("\n".join(text), encoding="ascii")


if __name__ == "__main__":
    main()
