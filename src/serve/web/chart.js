// chart.js - a small chart of curves over the steps of a training. The crosshair is shared: charts tell
// each other the step that is pointed at by `onpoint`, and show their values there by point(step).
import { make, svg } from "./dom.js";
import { say } from "./words.js";

const DOTS = 60; // a curve of fewer points has a dot for each
const MEANS = 120; // a curve has at most this many points
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [360, 190, 46, 10, 10, 24];

// About n round values from low to high.
function ticks(low, high, n) {
    const rough = (high - low) / n || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].find((f) => f * power >= rough * 0.999) * power;
    const list = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) list.push(i * step);
    return list;
}

// A number for an axis.
function short(value) {
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e3) return `${+(value / 1e3).toPrecision(3)}k`;
    return exact(value);
}

// A number to read.
function exact(value) {
    const size = Math.abs(value);
    if (size && size < 1e-3) return value.toExponential(1).replace("e-", "e\u2212");
    return size >= 1000 ? whole(value) : String(+value.toPrecision(4));
}

export function whole(value) {
    return Math.round(value).toLocaleString(document.documentElement.lang);
}

// Means of neighbouring points, so that a curve of many can be read; few points stay as they are.
function smooth(points) {
    const n = Math.ceil(points.length / MEANS);
    if (n < 2) return points;
    const mean = (list, i) => list.reduce((sum, p) => sum + p[i], 0) / list.length;
    return Array.from({ length: Math.ceil(points.length / n) }, (_, i) => points.slice(i * n, i * n + n))
        .map((list) => [mean(list, 0), mean(list, 1)]);
}

// The index of the point nearest to a step; points are in order of their steps.
function nearest(points, step) {
    let [low, high] = [0, points.length - 1];
    while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (points[middle][0] < step) low = middle;
        else high = middle;
    }
    return step - points[low]?.[0] < points[high]?.[0] - step ? low : high;
}

function line(points, x, y, color, name) {
    const d = points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    const path = svg("path", { class: name, d });
    path.style.stroke = color;
    return path;
}

function dot(cx, cy, color) {
    const circle = svg("circle", { cx, cy, r: 2.5 });
    circle.style.fill = color;
    return circle;
}

// series: names of the curves. Returns {element, set, point}; set takes their points, [[step, value]].
export function chart(title, series, onpoint) {
    const value = make("span", { class: "value" });
    const picture = svg("svg", {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "slider", tabindex: 0, "aria-label": title,
    });
    const element = make("figure", { class: "card chart" },
        make("figcaption", {}, make("span", {}, title), value), picture);
    const colours = series.map((_, i) => `var(--s${i})`);
    const cross = svg("g", { class: "cross" });
    let curves = [];
    let [first, last] = [0, 1];
    let [low, high] = [0, 1];
    const x = (step) => LEFT + (step - first) / (last - first || 1) * (WIDTH - LEFT - RIGHT);
    const y = (v) => HEIGHT - BOTTOM - (v - low) / (high - low || 1) * (HEIGHT - TOP - BOTTOM);

    function set(points, range) {
        curves = points.map((curve) => curve.filter((p) => Number.isFinite(p[1])));
        const values = curves.flat().map((p) => p[1]);
        element.hidden = values.length === 0;
        if (element.hidden) return;
        [first, last] = range;
        [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
        if (low === high) [low, high] = [low - Math.abs(low || 1) / 10, high + Math.abs(high || 1) / 10];
        if (series.length > 1) high += (high - low) / 10; // for the names above the curves
        const grid = ticks(low, high, 4).flatMap((v) => [
            svg("path", { class: "rule", d: `M${LEFT} ${y(v)}H${WIDTH - RIGHT}` }),
            svg("text", { x: LEFT - 7, y: y(v) + 4, "text-anchor": "end" }, short(v))]);
        const steps = ticks(first, last, 4).map((s) =>
            svg("text", { x: x(s), y: HEIGHT - 6, "text-anchor": x(s) > WIDTH - 30 ? "end" : "middle" }, short(s)));
        const drawn = curves.flatMap((c, i) => [
            ...(c.length > MEANS ? [line(c, x, y, colours[i], "curve raw")] : []),
            line(smooth(c), x, y, colours[i], "curve"),
            ...(c.length > DOTS ? [] : c.map(([a, b]) => dot(x(a), y(b), colours[i])))]);
        const name = ([a, b], text) => svg("text", { x: x(a), y: y(b) - 7, "text-anchor": "end" }, text);
        const names = series.length < 2 ? [] : curves.flatMap((c, i) => (c.length ? [name(c.at(-1), series[i])] : []));
        picture.replaceChildren(...grid, ...steps, ...drawn, ...names, cross);
        point(null);
    }

    // Shows the values at a step; null: the last ones.
    function point(step) {
        if (element.hidden) return;
        const found = curves.map((c) => c[step === null ? c.length - 1 : nearest(c, step)]);
        const said = found.flatMap((p, i) => (p ? [(series.length > 1 ? `${series[i]} ` : "") + exact(p[1])] : [])).join(", ");
        value.textContent = said;
        const marks = () => found.filter(Boolean).map(([a, b]) => svg("circle", { cx: x(a), cy: y(b), r: 4 }));
        const rule = () => svg("path", { d: `M${x(step)} ${TOP}V${HEIGHT - BOTTOM}` });
        cross.replaceChildren(...(step === null ? [] : [rule(), ...marks()]));
        const at = step ?? last;
        picture.setAttribute("aria-valuemin", first);
        picture.setAttribute("aria-valuemax", last);
        picture.setAttribute("aria-valuenow", at);
        picture.setAttribute("aria-valuetext", say("at-step", whole(at), said));
    }

    function pointAt(e) {
        const box = picture.getBoundingClientRect();
        const part = ((e.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
        onpoint(Math.round(first + Math.min(Math.max(part, 0), 1) * (last - first)));
    }

    let focused = null; // the step that the keys have reached
    picture.addEventListener("pointermove", pointAt);
    picture.addEventListener("pointerdown", pointAt);
    picture.addEventListener("pointerleave", () => onpoint(null));
    picture.addEventListener("blur", () => onpoint(focused = null));
    picture.addEventListener("keydown", (e) => {
        const jump = (last - first) / 40;
        const from = focused ?? last;
        const to = { ArrowLeft: from - jump, ArrowRight: from + jump, Home: first, End: last }[e.key];
        if (to === undefined) return;
        e.preventDefault();
        onpoint(focused = Math.round(Math.min(Math.max(to, first), last)));
    });
    return { element, set, point };
}
