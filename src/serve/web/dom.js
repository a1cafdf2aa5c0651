// dom.js - elements of the page: found, made, and what is kept between visits.

export const $ = (id) => document.getElementById(id);

// make("li", {class: "x", onclick: f}, "text", child): a member that is a function listens to an event;
// null and false leave an attribute out.
export function make(name, attributes = {}, ...children) {
    return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
    return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes))
        if (typeof value === "function") element.addEventListener(key.slice(2), value);
        else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
    element.append(...children);
    return element;
}

// Makes a select choose from [[value, text], ...] and keeps its value where it is still there.
export function fillSelect(select, entries, value = select.value) {
    select.replaceChildren(...entries.map(([key, text]) => make("option", { value: key }, text)));
    select.value = value;
    if (select.selectedIndex < 0 && entries.length) select.selectedIndex = 0;
}

// What early.js reads. Storage may be forbidden; then nothing is remembered.
export function keep(change) {
    try {
        localStorage.setItem("heed", JSON.stringify({ ...kept(), ...change }));
    } catch {
        // the choice lasts as long as the page
    }
}

export function kept() {
    try {
        return JSON.parse(localStorage.getItem("heed")) || {};
    } catch {
        return {};
    }
}
