// web_checks.js - looks at a page for what a reader would stumble over: text without contrast, names
// that are used twice, an order of focus that is not that of the page. An expression: the list of
// what is wrong, as sentences.
(() => {
    const wrong = [];
    const visible = (e) =>
        e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true }) && !e.closest(".unseen, .skip");
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

    // A color of CSS as [r, g, b, alpha], the last from 0 to 1.
    function rgba(color) {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = color;
        pen.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
        return [r, g, b, a / 255];
    }

    const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);

    function background(e) {
        if (!e) return [255, 255, 255, 1];
        const box = e instanceof SVGElement && e.closest("g")?.querySelector("rect");
        const color = rgba(box && box !== e ? getComputedStyle(box).fill : getComputedStyle(e).backgroundColor);
        return color[3] === 1 ? color : over(color, background(e.parentElement));
    }

    function luminance([r, g, b]) {
        const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        const [x, y, z] = [r, g, b].map((v) => linear(v / 255));
        return 0.2126 * x + 0.7152 * y + 0.0722 * z;
    }

    function contrast(a, b) {
        const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
        return (high + 0.05) / (low + 0.05);
    }

    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const seen = new Set();
    while (texts.nextNode()) {
        const e = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || seen.has(e) || !visible(e)) continue;
        if (e.closest(":disabled, option, noscript, .marks")) continue;
        seen.add(e);
        const style = getComputedStyle(e);
        const below = background(e);
        const ink = over(rgba(e instanceof SVGElement ? style.fill : style.color), below);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
        const ratio = contrast(ink, below);
        if (ratio < (large ? 3 : 4.5))
            wrong.push(`"${texts.currentNode.data.trim().slice(0, 20)}" has a contrast of ${ratio.toFixed(2)}`);
    }

    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    for (const id of new Set(ids))
        if (ids.filter((other) => other === id).length > 1) wrong.push(`two elements are ${id}`);
    for (const e of document.querySelectorAll("[tabindex]"))
        if (e.tabIndex > 0) wrong.push(`${e.id || e.className} has its own place in the order of focus`);
    for (const name of ["aria-labelledby", "aria-describedby", "for"])
        for (const e of document.querySelectorAll(`[${name}]`))
            if (!document.getElementById(e.getAttribute(name)))
                wrong.push(`${name}=${e.getAttribute(name)} names nothing`);
    if ([...document.querySelectorAll("h1")].filter((e) => e.checkVisibility()).length !== 1) wrong.push("not one h1");
    for (const e of document.querySelectorAll("button, select, input:not([type=checkbox]), nav a")) {
        const box = e.getBoundingClientRect();
        if (visible(e) && !e.closest(".lines, .grid") && (box.height < 24 || box.width < 24))
            wrong.push(`${e.id || e.textContent} is small to tap`);
    }
    for (const e of document.querySelectorAll("body *")) {
        const hides = getComputedStyle(e).overflowX === "hidden" && !e.matches("select, .word");
        if (hides && e.scrollWidth > e.clientWidth + 1 && visible(e))
            wrong.push(`a part of ${e.id || e.className} is cut off`);
    }
    const width = document.documentElement.scrollWidth;
    if (width > innerWidth) wrong.push(`the page is ${width} wide in a window of ${innerWidth}`);
    return wrong;
})()
