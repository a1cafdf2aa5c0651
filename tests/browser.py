"""browser.py - headless Chromium, driven over the DevTools protocol by a pipe. Needs nothing but Python.

Messages are JSON, each ended by a zero byte; the browser reads them from its descriptor 3 and writes
to 4. Every step waits for what it needs, up to a limit, and never for a fixed time.
"""

import base64
import json
import os
import select
import subprocess
import time

# What scripts that look at a page may call.
SHORT = """const one = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];"""
LIMIT = 30  # seconds until something that was waited for is missing


class Browser:
    def __init__(self, program, profile):
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$@"'
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--lang=en-US",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            ["bash", "-c", script, "sh", *command],
            stderr=subprocess.DEVNULL,
            pass_fds=(to_browser, from_browser),
        )
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.last, self.answers, self.session = b"", 0, {}, None
        self.complaints = []  # errors of scripts, of the console, of the policy
        self.requests = []  # addresses
        self.cancelled = 0  # requests that the page has cancelled
        self.downloads = []  # states of downloads
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=SHORT)

    def close(self):
        self.send("Browser.close", {})
        self.process.wait(LIMIT)

    # ---- the protocol ----

    def send(self, method, parameters):
        self.last += 1
        message = {"id": self.last, "method": method, "params": parameters}
        if self.session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        return self.last

    def call(self, method, **parameters):
        number = self.send(method, parameters)
        end = time.monotonic() + LIMIT
        while number not in self.answers:
            self.read(end)
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def read(self, end):
        ready, _, _ = select.select([self.read_end], [], [], max(0, end - time.monotonic()))
        if not ready:
            raise TimeoutError("the browser does not answer")
        data = os.read(self.read_end, 1 << 20)
        if not data:
            raise RuntimeError("the browser has ended")
        *messages, self.buffer = (self.buffer + data).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.note(message["method"], message["params"])

    def note(self, method, event):
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.complaints.append(
                "console: " + " ".join(str(a.get("value", a.get("description"))) for a in event["args"])
            )
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{event['entry']['text']} {event['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Network.loadingFailed":
            self.cancelled += event.get("canceled", False)
        elif method == "Browser.downloadProgress":
            self.downloads.append(event["state"])

    # ---- what a reader does and sees ----

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def run(self, script):
        """The value of an expression in the page; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(
                f"{script[:200]}: {details.get('exception', {}).get('description', details['text'])}"
            )
        return answer["result"].get("value")

    def wait(self, script, limit=LIMIT):
        """Waits until an expression is true, and returns its value."""
        end = time.monotonic() + limit
        while True:
            value = self.run(f"(v => v instanceof Node ? true : v)({script})")
            if value:
                return value
            if time.monotonic() > end:
                raise TimeoutError(f"never true: {script[:300]}")
            time.sleep(0.03)

    def size(self, width, height):
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    def media(self, **features):
        self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": name.replace("_", "-"), "value": value} for name, value in features.items()],
        )

    def center(self, selector):
        box = self.wait(f"""(() => {{ const e = one({json.dumps(selector)});
            if (!e || !e.getClientRects().length) return null;
            e.scrollIntoView({{block: "center", inline: "center"}});
            const b = e.getClientRects()[0];
            return [b.left + b.width / 2, b.top + b.height / 2]; }})()""")
        return {"x": box[0], "y": box[1]}

    def point(self, selector):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **self.center(selector))

    def click(self, selector):
        at = self.center(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", **at)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, name, code=0, text="", modifiers=0):
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=name,
            code=name,
            windowsVirtualKeyCode=code,
            text=text,
            modifiers=modifiers,
        )
        self.call(
            "Input.dispatchKeyEvent",
            type="keyUp",
            key=name,
            code=name,
            windowsVirtualKeyCode=code,
            modifiers=modifiers,
        )

    def choose(self, selector, value):
        """Chooses an option of a select, as the change of a reader."""
        self.run(f"""(() => {{ const s = one({json.dumps(selector)});
            s.value = {json.dumps(value)}; s.dispatchEvent(new Event("change", {{bubbles: true}})); }})()""")

    def upload(self, selector, path):
        node = self.call(
            "DOM.querySelector", nodeId=self.call("DOM.getDocument")["root"]["nodeId"], selector=selector
        )
        self.call("DOM.setFileInputFiles", files=[path], nodeId=node["nodeId"])

    def downloads_to(self, directory):
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=directory, eventsEnabled=True)

    def screenshot(self, path, whole=False):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        with open(path, "wb") as f:
            f.write(base64.b64decode(picture["data"]))
