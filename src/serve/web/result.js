// result.js - a translation as tokens that can be pointed at: each has its probability as a tint and in
// a tooltip, and shows the words of the source it is aligned with. The tokens are one stop of the Tab
// key; arrow keys move among them.
import { $, make } from "./dom.js";
import { say } from "./words.js";

let shown = { text: "", alignment: [] };

// Where the tokens are in the text: [{at, end, logp}], or [] where the pieces do not spell the text,
// because a character the vocabulary lacks was put back, for instance.
function places(text, tokens = []) {
    const list = [];
    let at = 0;
    for (const { piece, logp } of tokens) {
        const letters = piece.replaceAll("\u2581", " ").trim();
        if (!letters || piece === "</s>") continue;
        while (at < text.length && !text[at].trim()) at++;
        if (!text.startsWith(letters, at)) return [];
        list.push({ at, end: at + letters.length, logp });
        at += letters.length;
    }
    return list;
}

// Words, where there are no tokens to show.
function words(text, language) {
    return [...new Intl.Segmenter(language, { granularity: "word" }).segment(text)]
        .filter((s) => s.isWordLike)
        .map((s) => ({ at: s.index, end: s.index + s.segment.length }));
}

function token(text, { at, end, logp }, first) {
    const e = make("span", {
        class: "token", role: "button", tabindex: first ? 0 : -1, "aria-pressed": "false",
        "aria-describedby": "tip", "data-at": at, "data-end": end,
    }, text.slice(at, end));
    if (logp !== undefined) {
        e.dataset.p = Math.exp(logp);
        e.style.setProperty("--p", `${Math.round((1 - Math.exp(logp)) * 45)}%`);
    }
    return e;
}

// Shows a result of /v1/translate.
export function showResult(result, language) {
    const { text } = result;
    const tokens = places(text, result.tokens);
    const list = tokens.length ? tokens : words(text, language);
    const nodes = [];
    let end = 0;
    list.forEach((place, i) => {
        nodes.push(text.slice(end, place.at), token(text, place, i === 0));
        end = place.end;
    });
    shown = { text, alignment: result.alignment || [] };
    clearMarks();
    $("result").lang = language;
    $("result").replaceChildren(...nodes, text.slice(end));
}

// Shows a translation that is not finished.
export function showPartial(text, language) {
    shown = { text, alignment: [] };
    clearMarks();
    hideTip();
    $("result").lang = language;
    $("result").textContent = text;
}

export function shownText() {
    return shown.text;
}

// ---- alignment ----

const within = ([at, length], from, to) => at < to && from < at + length;

export function clearMarks() {
    $("marks").replaceChildren();
    for (const e of $("result").querySelectorAll(".linked")) {
        e.classList.remove("linked");
        e.setAttribute("aria-pressed", "false");
    }
}

// Marks both sides of the pairs that `chosen` accepts, and says them.
function mark(chosen) {
    clearMarks();
    const pairs = shown.alignment.filter(chosen);
    const text = $("text").value;
    const ranges = pairs.map((p) => p.source).sort((a, b) => a[0] - b[0]);
    const nodes = [];
    let end = 0;
    for (const [at, length] of ranges) {
        if (at < end) continue;
        nodes.push(text.slice(end, at), make("mark", {}, text.slice(at, at + length)));
        end = at + length;
    }
    if (pairs.length) $("marks").replaceChildren(...nodes, `${text.slice(end)}\n`);
    scrollMarks();
    for (const e of $("result").querySelectorAll(".token"))
        if (pairs.some((p) => within(p.target, Number(e.dataset.at), Number(e.dataset.end)))) {
            e.classList.add("linked");
            e.setAttribute("aria-pressed", "true");
        }
    return ranges.map(([at, length]) => text.slice(at, at + length)).join(" ");
}

function scrollMarks() {
    $("marks").style.width = `${$("text").clientWidth}px`;
    $("marks").scrollTop = $("text").scrollTop;
}

function choose(e) {
    if (e.getAttribute("aria-pressed") === "true") return clearMarks();
    const source = mark((p) => within(p.target, Number(e.dataset.at), Number(e.dataset.end)));
    $("heard").textContent = source ? say("from-words", e.textContent, source) : say("from-nothing", e.textContent);
}

// ---- probability ----

function showTip(e) {
    const tip = $("tip");
    if (!e.dataset.p) return;
    tip.textContent = say("probability", (e.dataset.p * 100).toFixed(e.dataset.p > 0.999 ? 0 : 1));
    tip.hidden = false;
    const box = e.getBoundingClientRect();
    const middle = box.left + box.width / 2 - tip.offsetWidth / 2;
    tip.style.left = `${Math.min(Math.max(middle, 8), innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${box.bottom + 8}px`;
}

function hideTip() {
    $("tip").hidden = true;
}

function move(e, step) {
    const all = [...$("result").querySelectorAll(".token")];
    const to = all[all.indexOf(e) + step];
    if (!to) return;
    e.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
}

export function startResult() {
    const at = (e) => e.target.closest?.(".token");
    const box = $("result");
    box.addEventListener("pointerover", (e) => (at(e) ? showTip(at(e)) : hideTip()));
    box.addEventListener("pointerleave", hideTip);
    box.addEventListener("focusin", (e) => at(e) && showTip(at(e)));
    box.addEventListener("focusout", hideTip);
    box.addEventListener("scroll", hideTip);
    box.addEventListener("click", (e) => at(e) && choose(at(e)));
    box.addEventListener("keydown", (e) => {
        const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[e.key];
        if (!at(e)) return;
        if (step) move(at(e), step);
        else if (e.key === "Enter" || e.key === " ") choose(at(e));
        else if (e.key === "Escape") hideTip();
        else return;
        e.preventDefault();
    });
    $("text").addEventListener("scroll", scrollMarks);
    $("text").addEventListener("click", () => {
        const caret = $("text").selectionStart;
        mark((p) => within(p.source, caret, caret + 1));
    });
}
