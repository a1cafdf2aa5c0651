// early.js - runs before the page is drawn, so that it appears at once in the theme and the language
// that were chosen on the last visit. Storage may be forbidden; then the system's are used.
{
    let kept = {};
    try {
        kept = JSON.parse(localStorage.getItem("heed")) || {};
    } catch {
        // nothing was kept
    }
    const root = document.documentElement;
    if (kept.theme) root.dataset.theme = kept.theme;
    root.lang = kept.language || (navigator.language.startsWith("zh") ? "zh" : "en");
}
