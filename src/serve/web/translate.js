// translate.js - the view that translates while one types. A request that a newer text supersedes is
// aborted, which cancels it on the server.
import { ask, events, setKey } from "./api.js";
import { $, fillSelect, keep, kept, make } from "./dom.js";
import { clearMarks, showPartial, showResult, shownText, startResult } from "./result.js";
import { say } from "./words.js";

const PAUSE = 250; // milliseconds without a key before a text is sent
const RESULTS = 4; // the translation and the other ones

let languages = []; // [{code, name, targets}]; none where the models name none
let models = [];
let limit = -1; // characters of a text, or -1
let running = null; // AbortController of the request under way
let timer = 0;
let answer = null; // the last element of "translations"
let detected = null;

// A language in the language of the page.
export function languageName(code) {
    try {
        return new Intl.DisplayNames(document.documentElement.lang, { type: "language" }).of(code);
    } catch {
        return languages.find((l) => l.code === code)?.name || code;
    }
}

// The languages and the model that are chosen, as members of a request.
export function chosen() {
    const members = { source: $("from").value, target: $("to").value, model: $("model").value };
    return Object.fromEntries(Object.entries(members).filter(([, value]) => value));
}

function fillModels() {
    const any = languages.length ? [["", say("any-model")]] : []; // the languages choose one
    fillSelect($("model"), [...any, ...models.map((m) => [m.name, m.name])]);
    $("models").hidden = models.length < 2;
}

function fillLanguages() {
    const from = $("from").value || kept().from || "auto";
    const auto = detected ? say("detected", languageName(detected)) : say("detect");
    const named = (codes) => codes.map((code) => [code, languageName(code)]);
    fillSelect($("from"), [["auto", auto], ...named(languages.map((l) => l.code))], from);
    const source = languages.find((l) => l.code === from);
    const targets = source?.targets?.filter((code) => code !== from) || languages.map((l) => l.code);
    const page = document.documentElement.lang;
    const likely = page !== "en" && targets.includes(page) ? page : targets.find((code) => code !== "en");
    fillSelect($("to"), named(targets), $("to").value || kept().to || likely);
    if (from !== "auto") $("text").lang = from;
}

function complain(message) {
    $("said").classList.toggle("bad", Boolean(message));
    $("said").textContent = message;
}

function count() {
    const n = [...$("text").value].length;
    const near = limit > 0 && n > limit * 0.8;
    $("count").textContent = near ? say("count-of", n, limit) : say("count", n);
    $("clear").hidden = n === 0;
}

function busy(on) {
    $("result").classList.toggle("busy", on);
    $("result").setAttribute("aria-busy", on);
}

function reset() {
    answer = null;
    showPartial("", $("to").value);
    $("others").hidden = true;
    $("copy").disabled = true;
    $("time").textContent = "";
    complain("");
    busy(false);
}

function showAnswer() {
    showResult(answer.results[answer.shown], answer.target);
    $("copy").disabled = false;
    const seen = new Set([shownText()]); // the same text may be spelled by other pieces
    const others = answer.results.map((r, i) => [r, i]).filter(([r]) => !seen.has(r.text) && seen.add(r.text));
    $("others").hidden = others.length === 0;
    const item = ([r, i]) => make("li", {}, make("button", { type: "button", onclick: () => useOther(i) },
        make("span", { lang: answer.target }, r.text),
        make("span", { class: "count" }, say("score", r.score.toFixed(2)))));
    $("list").replaceChildren(...others.map(item));
}

function useOther(i) {
    answer.shown = i;
    showAnswer();
    $("heard").textContent = shownText();
    $("result").querySelector(".token")?.focus();
}

function finish(translation) {
    answer = { ...translation, shown: 0 };
    if (translation.detected && translation.detected.language !== detected) {
        detected = translation.detected.language;
        fillLanguages();
    }
    if (answer.source) $("text").lang = answer.source;
    showAnswer();
    const loops = answer.results[0].flags?.includes("loop");
    complain(loops ? say("loop") : "");
    $("heard").textContent = shownText();
}

async function translate() {
    running?.abort();
    clearTimeout(timer);
    const text = $("text").value;
    if (!text.trim()) return reset();
    const mine = running = new AbortController();
    const began = performance.now();
    const request = { text, ...chosen(), nbest: RESULTS, align: true, tokens: true, stream: true };
    busy(true);
    try {
        for await (const { event, data } of events("/v1/translate", request, mine.signal))
            if (event === "partial") showPartial(data.text, request.target);
            else if (event === "translation") finish(data);
        $("time").textContent = say("time", Math.round(performance.now() - began));
    } catch (e) {
        if (mine.signal.aborted) return;
        reset();
        complain(e.message);
    }
    if (running === mine) busy(false);
}

function typed() {
    count();
    clearMarks();
    clearTimeout(timer);
    timer = setTimeout(translate, PAUSE);
}

function swap() {
    const { source, target } = chosen();
    const from = source === "auto" ? detected : source;
    const to = from && from !== target ? from : languages.find((l) => l.code !== target)?.code;
    const text = shownText();
    if (!to) return;
    $("from").value = target;
    fillLanguages();
    $("to").value = to;
    if (text) $("text").value = text;
    changed();
    count();
}

function changed() {
    fillLanguages();
    keep({ from: $("from").value, to: $("to").value });
    translate();
}

async function copy() {
    try {
        await navigator.clipboard.writeText(shownText());
    } catch { // a page that did not come by HTTPS or from this machine has no clipboard
        getSelection().selectAllChildren($("result"));
        document.execCommand("copy");
        getSelection().removeAllRanges();
    }
    complain("");
    $("said").textContent = say("copied");
}

async function load() {
    const [list, settings, served] = await Promise.all([
        ask("/languages"), ask("/frontend/settings"), ask("/v1/models"),
    ]);
    languages = list;
    models = served.models;
    limit = settings.charLimit ?? -1;
    for (const id of ["from", "to", "swap"]) $(id).hidden = languages.length === 0;
    $("keys").hidden = !settings.keyRequired;
    $("key").value = kept().key || "";
    setKey($("key").value);
    fillModels();
    fillLanguages();
    count();
    if ($("text").value) translate(); // a browser keeps the text when the page is loaded again
    return models.length > 0;
}

// Resolves when the languages are known, to whether there is a model to translate with.
export function startTranslate() {
    startResult();
    $("text").addEventListener("input", typed);
    $("from").addEventListener("change", changed);
    $("to").addEventListener("change", changed);
    $("model").addEventListener("change", translate);
    $("key").addEventListener("change", () => {
        setKey($("key").value);
        keep({ key: $("key").value });
        translate();
    });
    $("swap").addEventListener("click", swap);
    $("copy").addEventListener("click", copy);
    $("clear").addEventListener("click", () => {
        $("text").value = "";
        count();
        translate();
        $("text").focus();
    });
    document.addEventListener("worded", () => {
        fillModels();
        fillLanguages();
        count();
        if (answer) showAnswer();
    });
    return load();
}
