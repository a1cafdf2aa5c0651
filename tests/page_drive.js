// page_drive.js - drives the explorer of src/view/explore.js as a reader would and says "VERDICT
// good", or what is wrong, to the page that frames it.
const wrong = [];
const all = (selector) => [...document.querySelectorAll(selector)];
const one = (selector) => document.querySelector(selector);
const frame = () => new Promise((done) => setTimeout(done, 50));

function expect(what, condition) {
    if (!condition) wrong.push(what);
}

function choose(name, value) {
    const select = one(`select[name=${name}]`);
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
}

function point(element) {
    element.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
}

function leave() {
    one(".scroll").dispatchEvent(new PointerEvent("pointerleave"));
}

// Whether boxes of elements lie on each other.
function overlaps(elements) {
    const boxes = elements.map((e) => e.getBoundingClientRect());
    return boxes.some((a, i) => boxes.some((b, j) => i < j && a.left < b.right - 0.5 && b.left < a.right - 0.5 &&
        a.top < b.bottom - 0.5 && b.top < a.bottom - 0.5));
}

async function drive() {
    const data = JSON.parse(one("#data").textContent);
    const status = () => one(".status").textContent;
    for (const kind of ["cross", "encoder", "decoder"]) {
        const map = data[kind];
        choose("drawing", "lines");
        choose("kind", kind);
        choose("head", "0");
        choose("layer", "2");
        await frame();
        expect(`${kind}: words`, all(".word").length === map.queries.length + map.keys.length);
        expect(`${kind}: legend`, all(".legend li").length === map.heads);
        expect(`${kind}: words overlap`, !overlaps(all(".word")));
        const before = all(".lines line").length;
        expect(`${kind}: lines`, before > 0);

        choose("head", "3");
        const strokes = all(".lines line").map((l) => l.style.stroke);
        expect(`${kind}: colour of head 3`, strokes.length && strokes.every((s) => s === "var(--s2)"));

        const at = map.queries.length - 1; // sees all keys, in the decoder too
        point(one(`.word[data-side=query][data-at="${at}"]`));
        const row = map.weights[1][2][at];
        expect(`${kind}: lines of a word`, all(".lines line").length === row.filter((w) => w >= 10).length);
        const best = map.keys[row.indexOf(Math.max(...row))].replace(/^\u2581(?=.)/, "");
        expect(`${kind}: what a word looks at: ${status()}`, status().includes(`looks at: ${best} `));
        leave();
        expect(`${kind}: a word is left`, status().startsWith("Point at"));

        const first = one(".word[data-side=key]");
        first.focus();
        expect(`${kind}: focus shows a word`, status().includes("is looked at by"));
        first.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
        expect(`${kind}: arrow keys`, map.keys.length === 1 || document.activeElement.dataset.at === "1");
        document.activeElement.click();
        leave();
        expect(`${kind}: a tap pins a word`, one(".word[aria-pressed=true]"));
        document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
        expect(`${kind}: Escape`, !one(".word[aria-pressed=true]"));

        choose("drawing", "map");
        expect(`${kind}: cells`, all(".map tbody td").length === map.queries.length * map.keys.length);
        point(one(".map tbody td"));
        expect(`${kind}: a cell`, /looks at .*%$/.test(status()));
        expect(`${kind}: rows overlap`, !overlaps(all(".map tbody th")));
        expect(`${kind}: columns overlap`, !overlaps(all(".map thead th")));

        choose("drawing", "grid");
        expect(`${kind}: maps`, all(".grid button").length === map.layers * map.heads);
        all(".grid button")[map.heads + 1].click();
        expect(`${kind}: a map was chosen`, one("select[name=layer]").value === "2" && one("select[name=head]").value === "2");
        expect(`${kind}: lines of that map`, one(".lines"));
    }
    expect("the page is wider than the window", document.documentElement.scrollWidth <= innerWidth);
    expect("something was loaded", performance.getEntriesByType("resource").length === 0);
    expect("labels", all("select").every((s) => s.labels.length === 1));
    await frame();
    wrong.push(...complaints);
}

drive().catch((e) => wrong.push(String(e))).finally(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const paper = getComputedStyle(document.body).backgroundColor;
    const verdict = wrong.length ? wrong.join("; ") : "good";
    parent.postMessage(`VERDICT ${verdict}, ${scheme} on ${paper}, ${innerWidth} wide`, "*");
});
