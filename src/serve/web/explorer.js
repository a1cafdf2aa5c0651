// explorer.js - the view that looks inside the translation of a sentence: its attention, by the module
// that `heed attention` uses too, and its beam search. One request answers for both.
import { ask } from "./api.js";
import { drawBeam } from "./beam.js";
import { $ } from "./dom.js";
import { explore } from "./explore.js";
import { chosen } from "./translate.js";
import { exploreWords, say } from "./words.js";

let running = null;
let asked = ""; // the request whose answer is shown
let translation = null;
let explorer = null;

// Attention as explore.js takes it: weights in thousandths.
export function thousandths(attention) {
    const round = (weights) => (Array.isArray(weights) ? weights.map(round) : Math.round(weights * 1000));
    const { align_layer: layer, encoder, decoder, cross } = attention;
    const map = (m) => ({ ...m, weights: round(m.weights) });
    return { encoder: map(encoder), decoder: map(decoder), cross: map(cross), show: { layer } };
}

function firstSentence(text) {
    const line = text.trim().split("\n")[0];
    const [first] = new Intl.Segmenter(undefined, { granularity: "sentence" }).segment(line);
    return first ? first.segment.trim() : "";
}

function show() {
    if (!translation) return;
    $("seen").hidden = false;
    const { attention, attention_error: why, beam_tree: nodes, results } = translation;
    if (attention) {
        const data = thousandths(attention);
        if (explorer) explorer.take(data);
        else explorer = explore($("attention"), data, exploreWords());
    } else {
        explorer = null;
        $("attention").textContent = why || say("one-sentence");
    }
    if (nodes?.length) drawBeam($("beam"), nodes, results, translation.target);
    else $("beam").textContent = say("one-sentence");
}

async function look() {
    const text = $("sentence").value.trim();
    const request = { text, ...chosen(), nbest: 4, tokens: true, attention: true, beam_tree: true };
    if (!text || JSON.stringify(request) === asked) return;
    running?.abort();
    const mine = running = new AbortController();
    asked = JSON.stringify(request);
    $("explore-said").classList.remove("bad");
    $("explore-said").textContent = say("looking");
    try {
        const { translations } = await ask("/v1/translate", request, mine.signal);
        [translation] = translations;
        $("explore-said").textContent = translation.results[0].text;
        $("explore-said").lang = translation.target;
        show();
    } catch (e) {
        if (mine.signal.aborted) return;
        asked = "";
        translation = null;
        $("seen").hidden = true;
        $("explore-said").classList.add("bad");
        $("explore-said").textContent = e.message;
        $("explore-said").removeAttribute("lang");
    }
}

// Called when the view appears: looks at the sentence that was translated.
export function enterExplorer() {
    const sentence = firstSentence($("text").value) || $("sentence").value || say("example");
    $("sentence").value = sentence;
    look();
}

export function startExplorer() {
    $("look").addEventListener("submit", (e) => {
        e.preventDefault();
        look();
    });
    const again = () => {
        explorer = null;
        show();
    };
    document.addEventListener("worded", again);
    document.addEventListener("themed", () => explorer?.show({}));
}
