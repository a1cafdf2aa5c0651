// words.js - the page in English and Chinese. English is what index.html says, and EN for what is said
// later; an element with data-t has its text here, one with data-t-label its name, and one with
// data-t-hint its placeholder.

const EN = {
    languageName: "中文",
};
const ZH = {
    languageName: "English",
    translate: "翻译",
    explore: "探索",
    training: "训练",
};
const ATTRIBUTES = { t: null, tLabel: "aria-label", tHint: "placeholder" };
let words = EN;

// What a word or sentence is in the language of the page; {0} stands for the first value.
export function say(key, ...values) {
    return (words[key] ?? EN[key]).replace(/\{(\d)\}/g, (_, i) => values[i]);
}

function read(element, attribute) {
    return attribute ? element.getAttribute(attribute) : element.textContent;
}

function write(element, attribute, text) {
    if (attribute) element.setAttribute(attribute, text);
    else element.textContent = text;
}

// Writes the page in a language, and tells those who wrote something themselves.
export function setLanguage(language) {
    document.documentElement.lang = language;
    words = language === "zh" ? ZH : EN;
    for (const element of document.querySelectorAll("[data-t], [data-t-label], [data-t-hint]"))
        for (const [member, attribute] of Object.entries(ATTRIBUTES)) {
            const key = element.dataset[member];
            if (!key) continue;
            EN[key] ??= read(element, attribute);
            write(element, attribute, say(key));
        }
    const button = document.getElementById("language");
    button.textContent = words.languageName;
    button.lang = language === "zh" ? "en" : "zh";
    document.dispatchEvent(new Event("worded"));
}
