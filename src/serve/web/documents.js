// documents.js - files as segments to translate, and back: separate(name, text) returns {segments,
// format, join}, where join(translations, language) is the text of the translated file.

// Each line is a segment; empty ones, and what encloses a line, stay as they are.
function lines(text) {
    return pieces(text.split(/(\r?\n)/), (line, i) => i % 2 === 0 && line.trim() !== "");
}

// The parts for which `wanted` holds are segments, without the spaces around them.
function pieces(parts, wanted) {
    const at = parts.map((_, i) => i).filter((i) => wanted(parts[i], i));
    return {
        segments: at.map((i) => parts[i].trim()),
        join(translations) {
            const whole = [...parts];
            at.forEach((i, n) => {
                const [, before, after] = parts[i].match(/^(\s*)[^]*?(\s*)$/);
                whole[i] = before + translations[n] + after;
            });
            return whole.join("");
        },
    };
}

// Breaks a line of a subtitle into n, at the spaces, or letters, nearest to equal parts.
function wrap(text, n) {
    if (n < 2) return text;
    const aim = text.length / n;
    const spaces = [...text.matchAll(/\s/g)].map((m) => m.index);
    const near = (at) => Math.abs(at - aim);
    const at = spaces.length ? spaces.reduce((a, b) => (near(b) < near(a) ? b : a)) : Math.ceil(aim);
    return `${text.slice(0, at).trim()}\n${wrap(text.slice(at).trim(), n - 1)}`;
}

// A subtitle is a number, a line with its times and lines of text, which are one segment: a sentence
// goes on from line to line.
function subtitles(text) {
    const parts = text.replaceAll("\r\n", "\n").split(/((?:^|\n)\d+\n[^\n]*-->[^\n]*(?:\n|$))/);
    const joined = (_, letter) => (letter > "\u2e80" ? letter : `${letter} `); // Chinese has no spaces
    const plain = parts.map((part, i) => (i % 2 ? part : part.replace(/(\S)[ \t]*\n[ \t]*(?=\S)/g, joined)));
    const heights = parts.filter((part, i) => i % 2 === 0 && part.trim()).map((part) => part.trim().split("\n").length);
    const { segments, join } = pieces(plain, (part, i) => i % 2 === 0 && part.trim() !== "");
    return { segments, join: (translations) => join(translations.map((t, i) => wrap(t, heights[i]))) };
}

const INLINE = new Set(("a abbr b bdi bdo big cite em font i img ins del kbd label mark q ruby rp rt s samp small " +
    "span strike strong sub sup time tt u var wbr").split(" "));
const TAG = /(<!--[^]*?-->|<(script|style|pre|code|textarea|svg)\b[^]*?<\/\2\s*>|<[!/?]?[a-zA-Z][^>]*>)/i;

// What is between two tags that begin or end a block is a segment, with the inline tags in it.
function webPage(text) {
    const parts = [];
    const add = (part, block) => {
        if (block || !parts.length || parts.at(-1).block) parts.push({ part, block });
        else parts.at(-1).part += part;
    };
    for (let rest = text; rest;) {
        const found = rest.match(TAG);
        const at = found ? found.index : rest.length;
        if (at) add(rest.slice(0, at), false);
        if (!found) break;
        const name = found[0].match(/^<\/?([a-z0-9]+)/i)?.[1].toLowerCase();
        add(found[0], !INLINE.has(name));
        rest = rest.slice(at + found[0].length);
    }
    const letters = (part) => /\p{L}/u.test(part.replace(/<[^>]*>|&#?\w+;/g, ""));
    const { segments, join } = pieces(parts.map((p) => p.part), (part, i) => !parts[i].block && letters(part));
    const named = (page, language) => page.replace(/(<html\b[^>]*?\blang=["']?)[\w-]+/i, `$1${language}`);
    return { segments, join: (translations, language) => named(join(translations), language) };
}

export function separate(name, text) {
    if (/\.srt$/i.test(name)) {
        const format = /<\/?[ibu]>|<font\b/i.test(text) ? "html" : "text";
        return { ...subtitles(text), format };
    }
    if (/\.html?$/i.test(name)) return { ...webPage(text), format: "html" };
    return { ...lines(text), format: "text" };
}
