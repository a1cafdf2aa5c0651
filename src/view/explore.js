// explore.js - a module that shows the attention of a translation: explore(element, data) builds its
// controls and drawings inside the element and returns {show, take}. show changes what is shown, as
// in show({kind: "cross", layer: 5, head: 0, drawing: "lines"}), where any member may be left out;
// take(data) shows the same of other data. The pages of `heed attention` and `heed serve` use it.
//
// data: {encoder, decoder, cross, show}. The first three are {layers, heads, queries, keys, weights},
// with weights[layer][head][query][key] in thousandths; queries and keys are tokens, in which U+2581
// stands for a space. `show` is what is shown first. Layers and heads count from 1; head 0 is all.
// words: what is written, in the language of the reader. The colours are the variables that
// explore.css names. Nothing is loaded from anywhere.

// Numbers in braces stand for arguments.
export const ENGLISH = {
    cross: "cross-attention",
    encoder: "self-attention of the encoder",
    decoder: "self-attention of the decoder",
    source: "source",
    translation: "translation",
    lines: "lines",
    map: "map",
    grid: "all layers and heads",
    kind: "kind",
    layer: "layer",
    head: "head",
    drawing: "view",
    count: "{0} of {1}",
    all: "all",
    mean: "mean of all",
    oneHead: "head {0}",
    oneLayer: "layer {0}",
    oneMap: "layer {0}, head {1}",
    axes: "{0}: rows {1}, columns {2}",
    pickMap: "Choose a map to see its lines.",
    pickCell: "Rows look at columns; point at a cell to read its weight.",
    pickWord: "Point at a word, tap it or move to it with Tab and the arrow keys to see its lines.",
    looks: "{0} looks at: {1}",
    lookedAt: "{0} is looked at by: {1}",
    cell: "{0} looks at {1}: {2}",
    nothing: "nothing in particular",
};
// What the queries and the keys of a kind are.
const SIDES = {
    cross: ["translation", "source"],
    encoder: ["source", "source"],
    decoder: ["translation", "translation"],
};
const SERIES = 8; // colours of heads
const RAMP = 32; // last colour of the ramp
const LONG = 30; // sentences of more tokens are written smaller

export function explore(element, data, words = ENGLISH) {
    const view = { kind: "cross", layer: 1, head: 0, drawing: "lines", ...data.show };
    const chosen = { side: null, at: -1, pinned: false };
    const page = build(element, words);

    function show(change) {
        Object.assign(view, change);
        const map = data[view.kind];
        view.layer = Math.min(Math.max(view.layer, 1), map.layers);
        view.head = Math.min(Math.max(view.head, 0), map.heads);
        Object.assign(chosen, { side: null, at: -1, pinned: false });
        fillControls(page, data, view, words);
        page.drawing.replaceChildren(draw(data, view, words));
        page.drawing.classList.toggle("long", Math.max(map.queries.length, map.keys.length) > LONG);
        update();
    }

    // What depends on the word that is pointed at.
    function update() {
        page.status.textContent = sentence(data[view.kind], view, chosen, words);
        drawConnections();
    }

    function drawConnections() {
        if (view.drawing === "lines") connect(page.drawing, data[view.kind], view, chosen);
    }

    function choose(word, pin) {
        if (!word || (chosen.pinned && !pin)) return;
        const same = chosen.side === word.dataset.side && chosen.at === Number(word.dataset.at);
        chosen.pinned = pin && !(same && chosen.pinned);
        chosen.side = word.dataset.side;
        chosen.at = Number(word.dataset.at);
        update();
    }

    function release() {
        if (chosen.pinned) return;
        chosen.side = null;
        update();
    }

    for (const name of ["kind", "layer", "head", "drawing"])
        page.choose[name].addEventListener("change", () => {
            const value = page.choose[name].value;
            show({ [name]: name === "layer" || name === "head" ? Number(value) : value });
        });
    page.drawing.addEventListener("pointerover", (e) => {
        choose(e.target.closest(".word"), false);
        const cell = e.target.closest(".map tbody td");
        if (cell) page.status.textContent = cellSentence(cell, data[view.kind], view, words);
    });
    page.drawing.addEventListener("pointerleave", release);
    page.drawing.addEventListener("focusin", (e) => choose(e.target.closest(".word"), false));
    page.drawing.addEventListener("focusout", release);
    page.drawing.addEventListener("click", (e) => {
        choose(e.target.closest(".word"), true);
        const small = e.target.closest(".grid button");
        if (small) {
            show({ layer: Number(small.dataset.layer), head: Number(small.dataset.head), drawing: "lines" });
            page.choose.drawing.focus(); // the button is gone
        }
    });
    page.drawing.addEventListener("keydown", (e) => {
        if (e.key === "Escape") {
            chosen.pinned = false;
            release();
        }
        const word = e.target.closest(".word");
        const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
        const next = word && step && neighbour(page.drawing, word, step);
        if (next) {
            e.preventDefault();
            next.focus();
        }
    });
    const redraw = () => view.drawing === "grid" && show({});
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(drawConnections).observe(page.drawing);
    show({});
    const take = (other) => {
        data = other;
        show({});
    };
    return { show, take };
}

// ---- elements ----

function make(name, attributes = {}, ...children) {
    const svg = name === "svg" || name === "line";
    const e = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    e.append(...children);
    return e;
}

function fill(text, ...values) {
    return text.replace(/\{(\d)\}/g, (_, i) => values[i]);
}

// A token as people read it.
function label(token) {
    return token.length > 1 && token.startsWith("\u2581") ? token.slice(1) : token;
}

function control(page, name, text) {
    page.choose[name] = make("select", { name });
    return make("label", {}, text, page.choose[name]);
}

// The source and the translation as texts.
export function texts(data, words = ENGLISH) {
    const text = (tokens) =>
        tokens.filter((t) => !["</s>", "<s>"].includes(t)).join("").replaceAll("\u2581", " ").trim();
    return make("dl", { class: "texts" },
        make("dt", {}, words.source), make("dd", {}, text(data.cross.keys)),
        make("dt", {}, words.translation), make("dd", {}, text(data.cross.queries)));
}

function build(element, words) {
    const page = { choose: {} };
    page.status = make("p", { class: "status", role: "status", "aria-live": "polite" });
    page.legend = make("ul", { class: "legend" });
    page.drawing = make("div", { class: "scroll" });
    const names = ["kind", "layer", "head", "drawing"];
    element.replaceChildren(
        make("form", { class: "controls" }, ...names.map((name) => control(page, name, words[name]))),
        page.status, page.legend, page.drawing);
    element.querySelector("form").addEventListener("submit", (e) => e.preventDefault());
    return page;
}

function fillSelect(select, entries, value) {
    select.replaceChildren(...entries.map(([key, text]) => make("option", { value: key }, text)));
    select.value = String(value);
}

function fillControls(page, data, view, words) {
    const map = data[view.kind];
    const count = (n) => Array.from({ length: n }, (_, i) => [String(i + 1), fill(words.count, i + 1, n)]);
    const named = (names) => names.map((name) => [name, words[name]]);
    const all = view.drawing === "map" ? words.mean : words.all;
    fillSelect(page.choose.kind, named(Object.keys(SIDES)), view.kind);
    fillSelect(page.choose.layer, count(map.layers), view.layer);
    fillSelect(page.choose.head, [["0", all], ...count(map.heads)], view.head);
    fillSelect(page.choose.drawing, named(["lines", "map", "grid"]), view.drawing);
    page.choose.layer.disabled = page.choose.head.disabled = view.drawing === "grid";
    const heads = view.drawing === "lines" ? shownHeads(map, view) : [];
    page.legend.replaceChildren(...heads.map((h) => {
        const sample = make("i");
        sample.style.background = `var(--s${h % SERIES})`;
        return make("li", {}, sample, fill(words.oneHead, h + 1));
    }));
}

// ---- numbers ----

// The heads that are shown, counted from 0.
function shownHeads(map, view) {
    return view.head ? [view.head - 1] : Array.from({ length: map.heads }, (_, h) => h);
}

// A weight of 0 to 1; the mean over the heads that are shown.
function weight(map, view, query, key) {
    const heads = shownHeads(map, view);
    const layer = map.weights[view.layer - 1];
    return heads.reduce((sum, h) => sum + layer[h][query][key], 0) / heads.length / 1000;
}

function percent(w) {
    return `${Math.round(w * 100)}%`;
}

function sentence(map, view, chosen, words) {
    if (view.drawing === "grid") return words.pickMap;
    if (chosen.side === null) return view.drawing === "map" ? words.pickCell : words.pickWord;
    const looks = chosen.side === "query";
    const others = looks ? map.keys : map.queries;
    const strongest = others
        .map((token, i) => [looks ? weight(map, view, chosen.at, i) : weight(map, view, i, chosen.at), token])
        .sort((a, b) => b[0] - a[0])
        .slice(0, 5)
        .filter(([w]) => w >= 0.01)
        .map(([w, token]) => `${label(token)} ${percent(w)}`);
    const word = label((looks ? map.queries : map.keys)[chosen.at]);
    return fill(looks ? words.looks : words.lookedAt, word, strongest.join(", ") || words.nothing);
}

function cellSentence(cell, map, view, words) {
    const [q, k] = [Number(cell.dataset.q), Number(cell.dataset.k)];
    return fill(words.cell, label(map.queries[q]), label(map.keys[k]), percent(weight(map, view, q, k)));
}

// ---- drawings ----

function draw(data, view, words) {
    const map = data[view.kind];
    return { lines: drawLines, map: drawMap, grid: drawGrid }[view.drawing](map, view, words);
}

function column(tokens, side, name) {
    const words = tokens.map((token, i) =>
        make("li", {}, make("button", {
            type: "button", class: "word", "data-side": side, "data-at": i, title: label(token),
        }, label(token))));
    return make("div", { class: side === "query" ? "queries" : "keys" },
        make("div", { class: "side" }, name), make("ol", {}, ...words));
}

function drawLines(map, view, words) {
    const [queries, keys] = SIDES[view.kind].map((side) => words[side]);
    return make("div", { class: "lines" },
        column(map.queries, "query", queries),
        make("svg", { "aria-hidden": "true" }),
        column(map.keys, "key", keys));
}

// Draws the lines of the word that is chosen, or of all, and shades the words at their other ends.
function connect(drawing, map, view, chosen) {
    const svg = drawing.querySelector(".lines svg");
    if (!svg) return; // a button of the grid loses its focus while the lines take its place
    const words = (side) => [...drawing.querySelectorAll(`.word[data-side=${side}]`)];
    const columns = { query: words("query"), key: words("key") };
    const box = svg.getBoundingClientRect();
    const middle = (word) => {
        const r = word.getBoundingClientRect();
        return r.top + r.height / 2 - box.top;
    };
    const ends = { query: columns.query.map(middle), key: columns.key.map(middle) };
    const heads = shownHeads(map, view);
    const few = chosen.side !== null; // faint lines of all words would hide the others
    const least = few ? 0.01 : 0.05;
    const opacity = (w) => (few ? 0.25 + 0.75 * w : 0.1 + 0.9 * w ** 1.5);
    const lines = [];
    heads.forEach((h, n) => {
        const shift = heads.length > 1 ? (n / (heads.length - 1) - 0.5) * 10 : 0;
        map.weights[view.layer - 1][h].forEach((row, q) => row.forEach((thousandths, k) => {
            const w = thousandths / 1000;
            const other = chosen.side !== null && (chosen.side === "query" ? q : k) !== chosen.at;
            if (w < least || other) return;
            const line = make("line", {
                x1: 0, y1: ends.query[q] + shift, x2: box.width, y2: ends.key[k] + shift,
                "stroke-width": (0.5 + 3.5 * w).toFixed(2), "stroke-opacity": opacity(w).toFixed(3),
            });
            line.style.stroke = `var(--s${h % SERIES})`;
            lines.push(line);
        }));
    });
    svg.style.height = `${Math.max(...ends.query, ...ends.key) + 14}px`;
    svg.replaceChildren(...lines);
    shade(columns, map, view, chosen);
}

// The background of a word is a light colour of the ramp, on which its text can be read.
function shade(columns, map, view, chosen) {
    for (const side of ["query", "key"])
        columns[side].forEach((word, i) => {
            const picked = chosen.side === side && chosen.at === i;
            const faces = chosen.side !== null && chosen.side !== side;
            const w = !faces ? 0 : side === "key" ? weight(map, view, chosen.at, i) : weight(map, view, i, chosen.at);
            word.style.background = w >= 0.01 ? `var(--w${Math.round(1 + w * 9)})` : "";
            word.classList.toggle("chosen", picked);
            word.setAttribute("aria-pressed", picked && chosen.pinned);
        });
}

function drawMap(map, view, words) {
    const row = (token, q) => make("tr", {}, make("th", { scope: "row" }, label(token)),
        ...map.keys.map((key, k) => {
            const w = weight(map, view, q, k);
            const title = `${label(token)} \u2192 ${label(key)}: ${w.toFixed(3)}`;
            const cell = make("td", { "data-q": q, "data-k": k, title });
            cell.style.background = `var(--w${Math.round(w * RAMP)})`;
            return cell;
        }));
    const sides = SIDES[view.kind].map((side) => words[side]);
    return make("table", { class: "map", "aria-label": fill(words.axes, words[view.kind], ...sides) },
        make("thead", {}, make("tr", {}, make("td", {}), ...map.keys.map((key) => make("th", { scope: "col" }, label(key))))),
        make("tbody", {}, ...map.queries.map(row)));
}

// The colours of the ramp as a canvas takes them: a variable may name a color for each color scheme.
function rampColours() {
    const probe = document.body.appendChild(make("i"));
    const colours = Array.from({ length: RAMP + 1 }, (_, i) => {
        probe.style.color = `var(--w${i})`;
        return getComputedStyle(probe).color;
    });
    probe.remove();
    return colours;
}

// A map with one pixel for each cell.
function thumbnail(rows, colours) {
    const canvas = make("canvas", { width: rows[0].length, height: rows.length });
    const pen = canvas.getContext("2d");
    rows.forEach((row, q) => row.forEach((w, k) => {
        pen.fillStyle = colours[Math.round(w / 1000 * RAMP)];
        pen.fillRect(k, q, 1, 1);
    }));
    return canvas;
}

function drawGrid(map, view, words) {
    const numbers = (n) => Array.from({ length: n }, (_, i) => i);
    const colours = rampColours();
    const cell = (l, h) => {
        const name = fill(words.oneMap, l + 1, h + 1);
        return make("td", {}, make("button", {
            type: "button", "data-layer": l + 1, "data-head": h + 1, title: name, "aria-label": name,
        }, thumbnail(map.weights[l][h], colours)));
    };
    const heading = (scope, text) => make("th", { scope }, text);
    return make("table", { class: "grid" },
        make("thead", {}, make("tr", {}, make("td", {}),
            ...numbers(map.heads).map((h) => heading("col", fill(words.oneHead, h + 1))))),
        make("tbody", {}, ...numbers(map.layers).map((l) =>
            make("tr", {}, heading("row", fill(words.oneLayer, l + 1)), ...numbers(map.heads).map((h) => cell(l, h))))));
}

function neighbour(drawing, word, step) {
    const at = Number(word.dataset.at) + step;
    return drawing.querySelector(`.word[data-side=${word.dataset.side}][data-at="${at}"]`);
}
