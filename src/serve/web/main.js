// main.js - starts the page: its views by the part of the address behind #, its theme, its language.
import { $, keep } from "./dom.js";
import { enterExplorer, startExplorer } from "./explorer.js";
import { startFiles } from "./files.js";
import { enterTraining, leaveTraining, startTraining } from "./training.js";
import { startTranslate } from "./translate.js";
import { setLanguage } from "./words.js";

let views = ["translate", "explore", "training"];
const root = document.documentElement;

function route() {
    const view = views.find((name) => `#${name}` === location.hash) || views[0];
    for (const name of views) $(`view-${name}`).hidden = name !== view;
    for (const link of document.querySelectorAll("nav a"))
        if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
    leaveTraining();
    if (view === "explore") enterExplorer();
    if (view === "training") enterTraining();
}

function isDark() {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    return (root.dataset.theme || system) === "dark";
}

function themed() {
    $("theme").setAttribute("aria-pressed", isDark());
    document.dispatchEvent(new Event("themed"));
}

$("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep({ theme: root.dataset.theme });
    themed();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);

$("language").addEventListener("click", () => {
    const language = root.lang === "zh" ? "en" : "zh";
    keep({ language });
    setLanguage(language);
});

setLanguage(root.lang);
startFiles();
startExplorer();
startTraining();
themed();
startTranslate().then((translates) => {
    if (translates) return;
    views = ["training"]; // the server of a training has no model to translate with
    for (const link of document.querySelectorAll("nav a")) link.hidden = link.hash !== "#training";
}).catch((e) => {
    $("trouble").textContent = e.message;
    $("trouble").hidden = false;
}).finally(() => {
    addEventListener("hashchange", route);
    route();
});
