// beam.js - the hypotheses of a beam search as a tree, from left to right: one column for each token,
// and lines for those the search went on with. drawBeam(element, nodes, results, language).
import { make, svg } from "./dom.js";
import { say } from "./words.js";

const ROW = 34;
const GAP = 30; // between two columns

function label(node) {
    if (node.finished) return `${node.result >= 0 ? `${node.result + 1} ` : ""}\u25a0 ${node.score.toFixed(2)}`;
    return node.piece.replaceAll("\u2581", " ").trim() || "\u2581";
}

// Chinese letters are about twice as wide as Latin ones.
function width(text) {
    return [...text].reduce((sum, c) => sum + (c > "\u2e80" ? 16 : 8.6), 18);
}

// Copies of the nodes that are shown, with their children, the best first: the result of the lowest
// number, then those that were kept, then the higher score. A parent comes before its children.
function family(nodes, pruned) {
    const list = nodes.map((n, i) => ({
        ...n, i, text: label(n), children: [], depth: 0, best: n.result >= 0 ? n.result : Infinity,
    }));
    for (const n of list.toReversed())
        if (n.parent >= 0) list[n.parent].best = Math.min(list[n.parent].best, n.best);
    const shown = list.filter((n) => pruned || n.kept || n.best < Infinity);
    const top = [];
    for (const n of shown) {
        const parent = list[n.parent];
        n.depth = parent ? parent.depth + 1 : 0;
        (parent ? parent.children : top).push(n);
    }
    const order = (a, b) => (a.best !== b.best ? a.best - b.best : b.kept - a.kept || b.score - a.score);
    for (const siblings of [top, ...shown.map((n) => n.children)]) siblings.sort(order);
    return { list, shown, top };
}

// Gives each node its place. A node and its best descendants are level, in the first row below their
// parent's that is free in their columns.
function place({ shown, top }) {
    const widths = [];
    for (const n of shown) widths[n.depth] = Math.max(widths[n.depth] || 0, width(n.text));
    const left = widths.map((_, d) => widths.slice(0, d).reduce((sum, w) => sum + w + GAP, 10));
    const taken = []; // [row][depth]
    const walk = (n, above) => {
        const level = [];
        for (let m = n; m; m = m.children[0]) level.push(m);
        const columns = [n.depth - 1, ...level.map((m) => m.depth)]; // with that of the line to it
        let row = above + 1;
        while (columns.some((d) => taken[row]?.has(d))) row++;
        taken[row] ??= new Set();
        for (const d of columns) taken[row].add(d);
        for (const m of level)
            Object.assign(m, { x: left[m.depth], right: left[m.depth] + widths[m.depth], y: row * ROW + ROW / 2 + 6 });
        for (const m of level.reverse()) for (const other of m.children.slice(1)) walk(other, row);
    };
    for (const n of top) walk(n, -1);
    return { width: left.at(-1) + widths.at(-1) + 10, height: taken.length * ROW + 12 };
}

function kind(n) {
    return n.best < Infinity ? "path" : n.kept ? "kept" : "pruned";
}

function describe(n) {
    const token = say("beam-token", n.finished ? say("beam-end") : n.text, (Math.exp(n.logp) * 100).toFixed(1));
    const fate = n.result >= 0 ? say("beam-result", n.result + 1) : say(n.finished ? "beam-finished" : `beam-${kind(n)}`);
    return [token, say("score", n.score.toFixed(3)), fate].join(" · ");
}

function edge(n, parent) {
    const middle = (parent.right + n.x) / 2;
    const straight = `M${parent.x + width(parent.text)} ${parent.y}H${parent.right}`;
    const bend = `C${middle} ${parent.y} ${middle} ${n.y} ${n.x} ${n.y}`;
    return svg("path", { class: `edge ${kind(n)}`, "data-i": n.i, d: straight + bend });
}

function nodeOf(n, first) {
    return svg("g", {
        class: `node ${kind(n)}${n.finished ? " finished" : ""}`, role: "treeitem", tabindex: first ? 0 : -1,
        "data-i": n.i, "aria-level": n.depth + 1, "aria-label": describe(n), "aria-selected": "false",
        ...(n.children.length && { "aria-expanded": "true" }),
    },
    svg("rect", { x: n.x, y: n.y - 13, width: width(n.text), height: 26, rx: 7 }),
    svg("text", { x: n.x + width(n.text) / 2, y: n.y + 5, "text-anchor": "middle" }, n.text));
}

// The node that an arrow key leads to.
function step(n, key, tree) {
    const parent = tree.list[n.parent];
    if (key === "ArrowLeft") return parent;
    if (key === "ArrowRight") return n.children[0];
    const column = tree.shown.filter((other) => other.depth === n.depth).sort((a, b) => a.y - b.y);
    return column[column.indexOf(n) + (key === "ArrowDown" ? 1 : -1)];
}

function draw(box, status, nodes, language, pruned) {
    const tree = family(nodes, pruned);
    const size = place(tree);
    const edges = tree.shown.filter((n) => n.parent >= 0).map((n) => edge(n, tree.list[n.parent]));
    const picture = svg("svg", {
        ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "tree", lang: language, "aria-label": say("beam"),
    }, ...edges, ...tree.shown.map((n) => nodeOf(n, n === tree.top[0])));
    const at = (e) => tree.list[e.target.closest?.(".node")?.dataset.i];
    // Marks the whole hypothesis that ends with a node.
    const point = (n) => {
        const path = new Set();
        for (let m = n; m; m = tree.list[m.parent]) path.add(String(m.i));
        for (const e of picture.querySelectorAll("[data-i]")) e.classList.toggle("on", path.has(e.dataset.i));
        for (const e of picture.querySelectorAll(".node"))
            e.setAttribute("aria-selected", String(n?.i) === e.dataset.i);
        status.textContent = n ? describe(n) : say("beam-point");
    };
    picture.addEventListener("pointerover", (e) => at(e) && point(at(e)));
    picture.addEventListener("focusin", (e) => at(e) && point(at(e)));
    picture.addEventListener("keydown", (e) => {
        const to = e.key.startsWith("Arrow") && at(e) && step(at(e), e.key, tree);
        if (!to) return;
        e.preventDefault();
        for (const g of picture.querySelectorAll(".node"))
            g.setAttribute("tabindex", g.dataset.i === String(to.i) ? 0 : -1);
        picture.querySelector(`.node[data-i="${to.i}"]`).focus();
    });
    box.replaceChildren(picture);
    point(null);
}

function legend() {
    const sample = (name) => svg("svg", { width: 34, height: 12, "aria-hidden": "true" },
        svg("path", { class: `edge ${name}`, d: "M1 6H33" }));
    return make("ul", { class: "legend" },
        ...["path", "kept", "pruned"].map((name) => make("li", {}, sample(name), say(`beam-${name}`))),
        make("li", {}, "\u25a0 ", say("beam-ended")));
}

export function drawBeam(element, nodes, results, language) {
    const status = make("p", { class: "status", role: "status" });
    const box = make("div", { class: "tree", tabindex: -1 });
    const check = make("input", {
        type: "checkbox", onchange: () => draw(box, status, nodes, language, check.checked),
    });
    const ends = results.map((r) => make("li", {}, make("span", { lang: language }, r.text), " ",
        make("span", { class: "count" }, say("score", r.score.toFixed(3)))));
    element.replaceChildren(
        make("ol", { class: "ends" }, ...ends),
        make("div", { class: "row" }, legend(), make("label", { class: "check" }, check, say("beam-all"))),
        status, box);
    draw(box, status, nodes, language, false);
}
