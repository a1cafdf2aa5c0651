// training.js - the view that watches trainings: their curves, what they translate at each validation,
// and their attention to one sentence. Events of the server say that something was written; where
// there are none, the page asks again and again.
import { ask } from "./api.js";
import { chart, whole } from "./chart.js";
import { $, fillSelect, make } from "./dom.js";
import { explore } from "./explore.js";
import { thousandths } from "./explorer.js";
import { exploreWords, say } from "./words.js";

const POLL = 3000; // milliseconds between two questions
const POINTS = 4000; // a curve of more points is thinned

// [words of the title, list of the log, its members]
const CHARTS = [
    ["loss", "steps", ["loss"]],
    ["valid-loss", "valid", ["nll"]],
    ["scores", "valid", ["bleu", "chrf"]],
    ["rate", "steps", ["lr"]],
    ["norm", "steps", ["norm"]],
    ["speed", "steps", ["tokens_s"]],
];

let runs = [];
let watch = null; // what is watched: {name, next, steps, valid, source, timer, busy}
let charts = [];
let samples = [];
let explorer = null;
let shownStep = -1; // the step whose attention is shown

const path = (name, what) => `/v1/runs/${encodeURIComponent(name)}/${what}`;

function complain(message) {
    $("training-said").classList.toggle("bad", Boolean(message));
    $("training-said").textContent = message;
}

// ---- curves ----

function buildCharts() {
    const names = { bleu: "BLEU", chrf: "chrF" };
    charts = CHARTS.map(([title, list, members]) =>
        ({ list, members, ...chart(say(title), members.map((m) => names[m] || m), pointAll) }));
    $("charts").replaceChildren(...charts.map((c) => c.element));
}

function pointAll(step) {
    for (const c of charts) c.point(step);
}

function drawCharts() {
    const steps = [...watch.steps, ...watch.valid].map((row) => row.step);
    const range = [0, steps.reduce((a, b) => Math.max(a, b), 1)];
    for (const c of charts)
        c.set(c.members.map((m) => watch[c.list].map((row) => [row.step, row[m]])), range);
}

function describeRun() {
    const run = runs.find((r) => r.name === watch.name);
    $("done").hidden = !run?.steps;
    if (!run) return;
    $("done").value = run.steps ? run.step / run.steps : 0;
    const step = run.steps ? say("step-of", whole(run.step), whole(run.steps)) : say("step", whole(run.step));
    $("state").textContent = `${say(`run-${run.state}`)} · ${step}`;
    $("state").dataset.state = run.state;
}

// ---- news ----

async function update() {
    const mine = watch;
    if (mine.busy) return;
    mine.busy = true;
    try {
        const log = await ask(path(mine.name, `log?after=${mine.next}`));
        if (mine !== watch) return;
        const news = log.valid.length > 0 || mine.next === 0;
        mine.next = log.next;
        mine.steps.push(...log.steps);
        mine.valid.push(...log.valid);
        if (mine.steps.length > POINTS) mine.steps = mine.steps.filter((_, i) => i % 2);
        runs = (await ask("/v1/runs")).runs;
        if (news) samples = (await ask(path(mine.name, "samples"))).samples;
        if (mine !== watch) return;
        complain(mine.steps.length || mine.valid.length ? "" : say("no-steps"));
        describeRun();
        drawCharts();
        if (news) newSamples();
    } catch (e) {
        if (mine === watch) complain(e.message);
    } finally {
        mine.busy = false;
    }
}

function stop() {
    watch?.source?.close();
    clearInterval(watch?.timer);
    watch = null;
}

function start(name) {
    stop();
    watch = { name, next: 0, steps: [], valid: [] };
    samples = [];
    const source = watch.source = new EventSource(path(name, "events"));
    const mine = watch;
    source.addEventListener("log", update);
    source.addEventListener("error", () => {
        const ended = source.readyState === EventSource.CLOSED; // otherwise the browser connects again
        if (ended && mine === watch && !mine.timer) mine.timer = setInterval(update, POLL);
    });
    update();
}

// ---- samples ----

// Follows the newest validation unless an older one was chosen.
function newSamples() {
    const slider = $("at");
    const newest = Number(slider.value) === Number(slider.max);
    $("samples").hidden = samples.length === 0;
    slider.max = Math.max(samples.length - 1, 0);
    if (newest) slider.value = slider.max;
    showSample();
}

function showSample() {
    const sample = samples[$("at").value];
    if (!sample) return;
    $("at-step").textContent = say("step", whole(sample.step));
    $("at").setAttribute("aria-valuetext", say("step", whole(sample.step)));
    const row = (name, text, lang = null) => [make("dt", {}, say(name)), make("dd", { class: name, lang }, text)];
    $("texts").replaceChildren(...sample.texts.map((t) => {
        const target = t.source.match(/^>>([\w-]+)<</)?.[1]; // the tag of a model of several languages
        return make("dl", { class: "sample" }, ...row("source", t.source),
            ...row("reference", t.reference, target), ...row("translation", t.translation, target));
    }));
    showAttention(sample);
}

async function showAttention(sample) {
    $("fixed").hidden = !sample.attention;
    if (!sample.attention || sample.step === shownStep) return;
    const mine = watch;
    shownStep = sample.step;
    try {
        const data = thousandths(await ask(path(mine.name, `attention?step=${sample.step}`)));
        if (mine !== watch || shownStep !== sample.step) return;
        if (explorer) explorer.take(data);
        else explorer = explore($("fixed"), data, exploreWords());
    } catch (e) {
        shownStep = -1;
        complain(e.message);
    }
}

// ---- the view ----

export async function enterTraining() {
    try {
        ({ runs } = await ask("/v1/runs"));
    } catch (e) {
        return complain(e.message);
    }
    fillSelect($("run"), runs.map((r) => [r.name, r.name]));
    $("run").parentElement.hidden = runs.length === 0;
    if (runs.length) start($("run").value);
    else complain(say("no-runs"));
}

export function leaveTraining() {
    stop();
}

export function startTraining() {
    buildCharts();
    $("run").addEventListener("change", () => {
        [explorer, shownStep] = [null, -1];
        $("at").value = $("at").max;
        start($("run").value);
    });
    $("at").addEventListener("input", showSample);
    document.addEventListener("themed", () => explorer?.show({}));
    document.addEventListener("worded", () => {
        buildCharts();
        [explorer, shownStep] = [null, -1];
        if (!watch) return;
        describeRun();
        drawCharts();
        showSample();
    });
}
