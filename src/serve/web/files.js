// files.js - translates a file that is chosen or dropped, some segments a request, and offers the
// result as a download.
import { ask } from "./api.js";
import { separate } from "./documents.js";
import { $ } from "./dom.js";
import { chosen } from "./translate.js";
import { say } from "./words.js";

const SEGMENTS = 16; // a request has at most this many segments
const LETTERS = 2000; // and not many more letters than this
const TRIES = 5; // how often a request is sent that a busy server refuses

let running = null;

function phase(name) {
    $("choose").hidden = name === "working";
    $("cancel").hidden = $("progress").hidden = name !== "working";
    $("download").hidden = name !== "done";
}

function tell(...words) {
    $("file-said").textContent = say(...words);
}

async function patient(request, signal) {
    for (let n = 1; ; n++) {
        try {
            return await ask("/v1/translate", request, signal);
        } catch (e) {
            if (!e.wait || n === TRIES) throw e;
            await new Promise((done) => setTimeout(done, e.wait * 1000));
            signal.throwIfAborted();
        }
    }
}

// The number of segments of the next request.
function portion(segments, from) {
    let n = 0;
    for (let letters = 0; n < SEGMENTS && from + n < segments.length && letters < LETTERS; n++)
        letters += segments[from + n].length;
    return n;
}

async function translateAll(segments, format, languages, signal) {
    const done = [];
    while (done.length < segments.length) {
        tell("file-progress", done.length, segments.length);
        const text = segments.slice(done.length, done.length + portion(segments, done.length));
        const { translations } = await patient({ text, format, ...languages }, signal);
        done.push(...translations.map((t) => t.results[0].text));
        $("progress").value = done.length / segments.length;
    }
    return done;
}

function offer(file, text, language) {
    const link = $("download");
    if (link.href) URL.revokeObjectURL(link.href);
    link.href = URL.createObjectURL(new Blob([text], { type: file.type || "text/plain" }));
    link.download = file.name.replace(/(\.\w+)?$/, `.${language}$1`);
}

async function translateFile(file) {
    if (!file || running) return;
    running = new AbortController();
    $("progress").value = 0;
    phase("working");
    try {
        if (!/\.(txt|html?|srt)$/i.test(file.name)) throw new Error(say("file-kind", file.name));
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        const { segments, format, join } = separate(file.name, text);
        if (!segments.length) throw new Error(say("file-empty", file.name));
        const languages = chosen();
        const translations = await translateAll(segments, format, languages, running.signal);
        offer(file, join(translations, languages.target), languages.target);
        tell("file-done", $("download").download, segments.length);
        phase("done");
        $("download").focus();
    } catch (e) {
        phase("idle");
        if (running.signal.aborted) tell("file-cancelled", file.name);
        else $("file-said").textContent = e instanceof TypeError ? say("file-utf8", file.name) : e.message;
        $("choose").focus();
    }
    running = null;
    $("file").value = "";
}

export function startFiles() {
    $("choose").addEventListener("click", () => $("file").click());
    $("file").addEventListener("change", () => translateFile($("file").files[0]));
    $("cancel").addEventListener("click", () => running?.abort());
    const drop = $("view-translate");
    for (const kind of ["dragover", "dragleave", "drop"])
        drop.addEventListener(kind, (e) => {
            if (!e.dataTransfer.types.includes("Files")) return;
            e.preventDefault();
            $("drop").classList.toggle("over", kind === "dragover");
            if (kind === "drop") translateFile(e.dataTransfer.files[0]);
        });
}
