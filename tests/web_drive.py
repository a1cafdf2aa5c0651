"""web_drive.py - uses the page of heed serve in headless Chromium as a reader would.

usage: web_drive.py CHROMIUM ADDRESS HEED DIRECTORY

The server watches DIRECTORY/run, a training run; other files are written to DIRECTORY. What the page
shows is compared with what the program HEED prints. Prints what is wrong; exit code 1 if anything is.
"""

import json
import os
import subprocess
import sys
import time

from browser import Browser

HERE = os.path.dirname(os.path.abspath(__file__))
SENTENCE = "A dog runs across the old bridge."
ROLES = {
    "button",
    "link",
    "textbox",
    "combobox",
    "slider",
    "checkbox",
    "treeitem",
    "progressbar",
    "tree",
    "spinbutton",
}

program, address, heed, directory = sys.argv[1:5]
wrong = []
browser = Browser(program, os.path.join(directory, "profile"))


def expect(what, condition):
    if not condition:
        wrong.append(what)


def translate(text, *options):
    """What the program prints for a text."""
    done = subprocess.run(
        [heed, "translate", "--quiet", *options], input=text, capture_output=True, text=True, check=True
    )
    return done.stdout


def value(selector, member="textContent"):
    return browser.run(f"one({json.dumps(selector)}).{member}")


def path(name):
    return os.path.join(directory, name)


def write(name, text):
    with open(path(name), "w", encoding="utf-8", newline="") as f:
        f.write(text)
    return path(name)


def fresh(**kept):
    """Opens the page as on a visit after one that kept these choices."""
    browser.open(address)
    browser.run(f"localStorage.setItem('heed', {json.dumps(json.dumps({'language': 'en', **kept}))})")
    browser.open("about:blank")
    browser.open(address)
    browser.wait("all('#to option').length > 1")


def settled():
    browser.wait("one('#result .token') && !one('#result.busy')")


def enter(text):
    """Types a text in place of the one that is there.

    The result is emptied, so that what is waited for is the new one.
    """
    browser.click("#text")
    browser.run("one('#text').select(); one('#result').textContent = ''")
    browser.type(text)


def look(where):
    """The checks of every state of the page, once nothing moves."""
    browser.run("Promise.all(document.getAnimations().map(a => a.finished)).then(() => true)")
    with open(os.path.join(HERE, "web_checks.js"), encoding="utf-8") as f:
        wrong.extend(f"{where}: {complaint}" for complaint in browser.run(f.read()))
    for node in browser.call("Accessibility.getFullAXTree")["nodes"]:
        role = node.get("role", {}).get("value")
        if role in ROLES and not node["ignored"] and not node.get("name", {}).get("value"):
            wrong.append(f"{where}: a {role} has no name ({node.get('backendDOMNodeId')})")


# ---- translate ----


def type_and_read():
    fresh(to="de")
    enter(SENTENCE)
    settled()
    expect("translation", value("#result") == translate(SENTENCE, "--to", "de").strip())
    expect("a language was detected", "English" in value("#from option:checked"))
    expect("language of the source", value("#text", "lang") == "en")
    expect("language of the translation", value("#result", "lang") == "de")
    expect("characters are counted", str(len(SENTENCE)) in value("#count"))
    expect("the translation is announced", value("#heard") == value("#result"))
    others = browser.run("all('#list span[lang]').map(e => e.textContent)")
    expect("other translations", others and value("#result") not in others)
    look("translate")
    browser.click("#list button")
    expect("another translation was chosen", value("#result") == others[0])


def probabilities_and_alignment():
    enter(SENTENCE)
    settled()
    browser.point("#result .token:nth-of-type(2)")
    browser.wait("!one('#tip').hidden")
    expect("tooltip", value("#tip").endswith("% likely"))
    expect(
        "a token is tinted",
        browser.run("all('.token').some(e => getComputedStyle(e).backgroundColor !== 'rgba(0, 0, 0, 0)')"),
    )
    browser.click("#result .token:nth-of-type(2)")
    expect("words of the source are marked", value("#marks mark") == "dog")
    expect("the token is marked", value("#result .linked") == "Hund")
    browser.run("one('#result .token').focus()")
    browser.key("ArrowRight", 39)
    browser.wait("document.activeElement === all('.token')[1]")
    expect("the tooltip comes with focus", not value("#tip", "hidden"))
    browser.key("Enter", 13)
    expect("Enter takes the marks away", not browser.run("one('#marks mark')"))
    look("marked")


def grows_and_is_cancelled():
    """A long text grows while it is translated; typing on cancels the request."""
    sentences = " ".join(f"{SENTENCE[:-1]} with {n} other animals." for n in range(3, 40))
    browser.run(
        """window.lengths = []; new MutationObserver(() => lengths.push(one('#result').textContent.length))
        .observe(one('#result'), {childList: true, characterData: true, subtree: true})"""
    )
    enter(sentences)
    browser.wait("lengths.filter(n => n > 0).length >= 2 && one('#result.busy')")
    before = browser.cancelled
    browser.click("#text")
    browser.type(" More.")
    browser.wait("one('#result.busy')")
    enter(SENTENCE)
    browser.wait(f"one('#result').textContent === {json.dumps(translate(SENTENCE, '--to', 'de').strip())}")
    expect("the superseded request is cancelled", browser.cancelled > before)


def swap():
    translation = value("#result")
    browser.click("#swap")
    browser.wait("one('#to').value === 'en' && one('#result').lang === 'en'")
    settled()
    expect("swapped languages", value("#from", "value") == "de")
    expect("swapped text", value("#text", "value") == translation)
    expect("translation back", value("#result") == translate(translation, "--to", "en").strip())


def copy_and_clear():
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    browser.click("#copy")
    browser.wait("one('#said').textContent === 'Copied.'")
    expect("copied", browser.run("navigator.clipboard.readText()") == value("#result"))
    browser.click("#clear")
    expect("cleared", value("#text", "value") == "" and value("#result") == "")


# ---- files ----


def send_file(name, text):
    """Uploads a file and returns what is downloaded."""
    browser.upload("#file", write(name, text))
    browser.wait("!one('#download').hidden", 120)
    look(name)
    target = value("#download", "download")
    browser.downloads.clear()
    browser.click("#download")
    end = time.monotonic() + 20
    while "completed" not in browser.downloads and time.monotonic() < end:
        browser.run("0")
        time.sleep(0.05)
    with open(path(target), encoding="utf-8", newline="") as f:
        return f.read()


def files():
    fresh(to="de", **{"from": "en"})
    browser.downloads_to(directory)
    lines = "".join(f"The dog has {n} friends.\n" if n % 5 else "\n" for n in range(1, 41))
    browser.run("""window.steps = []; new MutationObserver(() => steps.push(one('#progress').value))
        .observe(one('#progress'), {attributes: true})""")
    expect("text file", send_file("lines.txt", lines) == translate(lines, "--to", "de"))
    expect("progress", browser.run("steps.some(v => v > 0 && v < 1) && steps.at(-1) === 1"))

    times = "1\n00:00:01,000 --> 00:00:02,500\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n"
    said = send_file("film.srt", times.format("The dog\nruns.", "The cat sleeps."))
    first, second = translate("The dog runs.\nThe cat sleeps.\n", "--to", "de").splitlines()
    expect(f"subtitles: {said!r}", said.replace("\n", " ") == times.format(first, second).replace("\n", " "))
    expect("lines of a subtitle", len(said.splitlines()) == 8)

    script = '<script>let dog = "runs";</script>'
    page = f"""<!doctype html>
<html lang="en">
<head><title>The house</title></head>
<body>
<p class="x">The <b>dog</b> runs.</p>
{script}
</body>
</html>
"""
    said = send_file("page.html", page)
    expect(
        f"web page: {said!r}",
        'lang="de"' in said
        and '<p class="x">' in said
        and "<b>Hund</b>" in said
        and script in said
        and "<title>Das Haus</title>" in said,
    )

    browser.upload("#file", write("x.pdf", "no"))
    browser.wait("one('#file-said').textContent.includes('x.pdf is neither')")
    browser.upload(
        "#file", write("long.txt", "The dog runs across the bridge and the cat sleeps in the house.\n" * 2000)
    )
    browser.click("#cancel")
    browser.wait("one('#file-said').textContent.includes('cancelled')")
    expect("a cancelled file is not offered", value("#download", "hidden"))


# ---- explore ----


def attention():
    fresh(to="de")
    enter(SENTENCE)
    settled()
    browser.click("nav a[href='#explore']")
    browser.wait("all('#attention .lines line').length > 0")
    expect("the sentence is taken along", value("#sentence", "value") == SENTENCE)
    look("lines")
    browser.choose("#attention select[name=drawing]", "grid")
    layers, heads = browser.run(
        "[all('#attention .grid tbody tr').length, all('#attention .grid thead th').length]"
    )
    expect("all layers and heads", layers == 6 and heads == 6)
    expect(
        "a small map is drawn",
        browser.run("""(() => { const c = one('#attention canvas');
        return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size > 4; })()"""),
    )
    look("grid")
    browser.click("#attention .grid button[data-layer='4'][data-head='2']")
    browser.wait("all('#attention .lines line').length > 0")
    expect(
        "a head was opened",
        browser.run("one('#attention select[name=layer]').value + one('#attention select[name=head]').value")
        == "42",
    )
    browser.point("#attention .word[data-side=query][data-at='1']")
    browser.wait("one('#attention .status').textContent.startsWith('Hund looks at:')")
    expect("the word is aligned", "looks at: dog " in value("#attention .status"))
    for kind in ("encoder", "decoder", "cross"):
        browser.choose("#attention select[name=kind]", kind)
        expect(
            f"lines of the {kind}",
            browser.run("all('#attention .lines line').length > 0"),
        )
    browser.choose("#attention select[name=drawing]", "map")
    browser.point("#attention .map tbody td")
    browser.wait("one('#attention .status').textContent.includes(' looks at ')")
    look("map")


def beam():
    expect("results", value("#beam .ends li span") == translate(SENTENCE, "--to", "de").strip())
    kinds = browser.run("['path', 'kept', 'pruned', 'finished'].map(k => all(`#beam .node.${k}`).length)")
    expect(f"nodes of the tree: {kinds}", kinds[0] > 4 and kinds[1] > 0 and kinds[2] == 0 and kinds[3] > 0)
    browser.click("#beam input[type=checkbox]")
    expect("pruned candidates", browser.run("all('#beam .node.pruned').length > 0"))
    spelled = browser.run(
        """(() => { const end = all('#beam .node.finished text').find(t => t.textContent.startsWith('1 '));
        end.parentElement.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
        return all('#beam .node.on:not(.finished) text').map(t => t.textContent).join('').replaceAll(' ', ''); })()"""
    )
    expect(
        f"the path of the first result: {spelled}", spelled == value("#beam .ends li span").replace(" ", "")
    )
    browser.run("one('#beam .node[tabindex=\"0\"]').focus()")
    browser.key("ArrowRight", 39)
    browser.wait("document.activeElement.getAttribute('aria-level') === '2'")
    expect("focus says a token", "% likely" in value("#beam .status"))
    look("beam")


# ---- training ----


def log_line(step):
    return (
        json.dumps(
            {
                "event": "step",
                "step": step,
                "epoch": 1,
                "seconds": step / 10,
                "loss": 3 + 6 / (1 + step / 50),
                "lr": 0.0007,
                "norm": 1.5,
                "source_tokens": 900,
                "target_tokens": 900,
                "flops": 1e9,
                "tokens_s": 9000 + step,
            }
        )
        + "\n"
    )


def training():
    browser.click("nav a[href='#training']")
    browser.wait("all('#charts .curve').length >= 6")
    expect(
        "curves",
        browser.run("all('#charts figure').filter(f => !f.hidden).length") == 6,
    )
    last = value("#charts .value")
    with open(path("run/log.jsonl"), "a", encoding="utf-8") as f:
        f.write("".join(log_line(step) for step in range(210, 400, 10)))
    browser.wait(f"one('#charts .value').textContent !== {json.dumps(last)}")
    browser.wait("one('#charts svg').getAttribute('aria-valuemax') === '390'")
    browser.point("#charts svg")
    browser.wait("all('#charts .cross circle').length >= 6")
    expect(
        "all charts show the step",
        len(set(browser.run("all('#charts svg').map(s => s.getAttribute('aria-valuenow'))"))) == 1,
    )
    browser.run("one('#charts svg').focus()")
    browser.key("Home", 36)
    browser.wait("one('#charts svg').getAttribute('aria-valuenow') === '0'")
    look("training")


def samples():
    browser.wait("!one('#samples').hidden")
    texts = lambda: browser.run("all('#texts .translation').map(e => e.textContent)")
    newest = texts()
    browser.run("one('#at').focus()")
    browser.key("Home", 36)
    browser.wait("one('#at').value === '0'")
    expect("samples of an earlier validation", newest and texts() != newest)
    browser.wait("all('#fixed .lines line').length > 0")
    expect("language of a sample", value("#texts .translation", "lang") == "de")
    look("samples")


# ---- the whole page ----


def language_and_themes():
    fresh(to="de")
    enter(SENTENCE)
    settled()
    for scheme, other in (("light", "dark"), ("dark", "light")):
        browser.media(prefers_color_scheme=scheme)
        browser.run("delete document.documentElement.dataset.theme")
        expect(
            f"{scheme} as the system",
            browser.run(
                "getComputedStyle(document.documentElement).getPropertyValue('color-scheme') === 'light dark'"
            ),
        )
        paper = browser.run("getComputedStyle(one('.card')).backgroundColor")
        expect(f"{scheme} paper", paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme])
        look(scheme)
        browser.click("#theme")
        expect(
            f"{other} by choice",
            browser.run("getComputedStyle(one('.card')).backgroundColor") != paper,
        )
        look(f"{other} by choice")
    browser.click("#language")
    browser.wait("document.documentElement.lang === 'zh'")
    expect(
        "Chinese",
        value("nav a") == "翻译" and value("#copy") == "复制" and "德语" in value("#to option:checked"),
    )
    expect(
        "no English is left",
        not browser.run(
            """all('[data-t]').filter(e => /[a-z]{3}/.test(e.textContent.replace(/API|\\.\\w+/g, ''))).length"""
        ),
    )
    browser.open(address)
    browser.wait("all('#to option').length > 1")
    expect("the choice is remembered", value("html", "lang") == "zh")
    browser.click("#language")
    expect("English again", value("nav a") == "Translate")
    browser.media(prefers_reduced_motion="reduce")
    expect(
        "nothing moves",
        browser.run("getComputedStyle(one('#copy')).transitionDuration") == "0s",
    )
    browser.media()


def keyboard():
    """Tab goes through the page in the order of its elements, and focus can be seen."""
    fresh(to="de")
    browser.run(f"""window.visited = []; one('#text').value = {json.dumps(SENTENCE)};
        one('#text').dispatchEvent(new Event('input'))""")
    settled()
    for _ in range(40):
        browser.key("Tab", 9)
        if not browser.run("""(() => { const e = document.activeElement;
            if (e === document.body || visited.includes(e)) return false;
            visited.push(e);
            const style = getComputedStyle(e);
            e.dataset.shown = style.outlineStyle !== 'none' || style.boxShadow !== 'none';
            return true; })()"""):
            break
    names = browser.run("visited.map(e => e.id || e.className || e.hash)")
    expect(
        f"Tab reaches everything: {names}",
        {"from", "swap", "to", "text", "copy", "token", "choose", "theme", "language"} <= set(names),
    )
    expect(
        "Tab follows the page",
        browser.run(
            "visited.every((e, i) => !i || visited[i - 1].compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING)"
        ),
    )
    expect("focus is visible", browser.run("visited.every(e => e.dataset.shown === 'true')"))
    browser.run("document.activeElement.blur(); scrollTo(0, 0)")


def phone():
    for width in (360, 390):
        browser.size(width, 780)
        for language in ("en", "zh"):
            fresh(to="de", language=language)
            enter(SENTENCE)
            settled()
            look(f"{width} wide, {language}, translate")
            browser.click("nav a[href='#explore']")
            browser.wait("one('#beam .tree svg') && one('#attention .lines line')")
            look(f"{width} wide, {language}, explore")
            browser.click("nav a[href='#training']")
            browser.wait("all('#charts .curve').length >= 6")
            look(f"{width} wide, {language}, training")
    browser.size(1280, 900)


def refusals():
    """What the server refuses is said in its own words."""
    browser.complaints.clear()
    fresh(to="de")
    limit = browser.run("fetch('/frontend/settings').then(r => r.json()).then(s => s.charLimit)")
    if limit > 0:
        browser.run(
            f"one('#text').value = 'a '.repeat({limit}); one('#text').dispatchEvent(new Event('input'))"
        )
        browser.wait("one('#said.bad') && one('#said').textContent.length > 20")
        look("refused")
        expect(f"one complaint of the browser: {browser.complaints}", len(browser.complaints) == 1)


STEPS = [
    type_and_read,
    probabilities_and_alignment,
    grows_and_is_cancelled,
    swap,
    copy_and_clear,
    files,
    attention,
    beam,
    training,
    samples,
    language_and_themes,
    keyboard,
    phone,
]


def take(step):
    began, before = time.monotonic(), len(wrong)
    try:
        step()
    except (RuntimeError, TimeoutError, OSError) as error:
        wrong.append(str(error))
    wrong[before:] = [f"{step.__name__}: {complaint}" for complaint in wrong[before:]]
    print(f"{step.__name__}: {time.monotonic() - began:.1f} s")


def main():
    browser.size(1280, 900)
    for step in STEPS:
        take(step)
    wrong.extend(f"the browser complains: {complaint}" for complaint in browser.complaints)
    take(refusals)
    ours = (address, f"blob:{address}", "about:", "data:")
    wrong.extend(f"outside request: {url}" for url in browser.requests if not url.startswith(ours))
    browser.close()
    for complaint in dict.fromkeys(wrong):
        print(f"FAILED: {complaint}")
    return 1 if wrong else 0


sys.exit(main())
