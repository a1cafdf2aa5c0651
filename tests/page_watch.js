// page_watch.js - runs before a page's own scripts and notes what must not happen: errors, messages
// of the console that complain, violations of the Content-Security-Policy.
window.complaints = [];
for (const kind of ["error", "unhandledrejection", "securitypolicyviolation"])
    window.addEventListener(kind, (e) =>
        complaints.push(`${kind}: ${e.message || e.reason || e.violatedDirective}`), true);
for (const kind of ["error", "warn"]) console[kind] = (...words) => complaints.push(`console.${kind}: ${words.join(" ")}`);
