"""A headless Chromium with one page, driven over its DevTools protocol: JSON messages, each ended by a zero byte,
through a pair of pipes."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


class Browser:
    def __init__(self):
        program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        if not program:
            raise SystemExit("no Chromium here; `make deps` installs chromium-headless-shell")
        self.folder = tempfile.TemporaryDirectory()
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()

        def pipes():  # the browser reads from 3 and writes to 4
            a, b = os.dup(to_read), os.dup(to_write)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             "--user-data-dir=" + self.folder.name, "about:blank"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.buffer, self.count, self.session = b"", 0, None
        self.requests, self.problems = [], []  # the page's network requests; errors in its console
        self.traced, self.tracing = [], False  # events of a trace
        target = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"][0]
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.downloads = os.path.join(self.folder.name, "downloads")
        self.whole("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.downloads)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def _event(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Network.requestWillBeSent" and not p["request"]["url"].startswith(("blob:", "data:")):
            self.requests.append(p["request"]["url"])
        elif method == "Tracing.dataCollected":
            self.traced += p["value"]
        elif method == "Tracing.tracingComplete":
            self.tracing = False
        elif method == "Runtime.exceptionThrown":
            details = p["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
            self.problems.append(" ".join(str(a.get("value", a.get("description"))) for a in p["args"]))
        elif method == "Log.entryAdded" and p["entry"]["level"] == "error":
            self.problems.append(p["entry"]["text"])

    def _message(self, until):
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], max(0, until - time.monotonic()))[0]:
                return None
            chunk = os.read(self.back, 1 << 20)
            if not chunk:
                raise SystemExit("the browser ended")
            self.buffer += chunk
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        until = time.monotonic() + 60
        while True:
            answer = self._message(until)
            if answer is None:
                raise SystemExit(f"{method}: no answer in 60 s")
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._event(answer)

    def value(self, expression):
        """Returns the value of a JavaScript expression, or of the promise that it gives."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def trace(self, categories, expression):
        """Returns the value of an expression, and the events of the browser's own trace meanwhile."""
        self.whole("Tracing.start", categories=categories)
        self.traced, self.tracing = [], True
        value = self.value(expression)
        self.whole("Tracing.end")
        while self.tracing:
            self.whole("Target.getTargets")
        return value, self.traced

    def whole(self, method, **params):
        """Calls a method of the whole browser."""
        session, self.session = self.session, None
        answer = self.call(method, **params)
        self.session = session
        return answer

    def wait(self, expression, seconds=30):
        """Returns whether the expression became true within the given seconds."""
        until = time.monotonic() + seconds
        while not self.value(f"Boolean({expression})"):
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def open(self, url):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def size(self, width, height, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, ctrl=False, shift=False):
        codes = {"Backspace": 8, "Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
                 "ArrowDown": 40, " ": 32}
        code = codes.get(key) or (ord(key.upper()) if key.isalnum() else 0)
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 and not ctrl else "")
        what = dict(key=key, code=key if len(key) > 1 else "Key" + key.upper(), windowsVirtualKeyCode=code,
                    modifiers=2 * ctrl + 8 * shift)
        commands = ["undo"] if ctrl and key == "z" else []
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, commands=commands, **what)
        self.call("Input.dispatchKeyEvent", type="keyUp", **what)

    def box(self, selector):
        return self.value(f"(e => {{ const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; }})({selector})")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def drag(self, x0, y0, x1, y1, steps=8):
        self.mouse("mousePressed", x0, y0, button="left", clickCount=1, buttons=1)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps, button="left", buttons=1)
        self.mouse("mouseReleased", x1, y1, button="left", clickCount=1)

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def printed(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.printToPDF", landscape=True, preferCSSPageSize=True)["data"]))

    def downloaded(self, end, seconds=20):
        """Returns the contents of the download whose name has this ending, once it is there, and deletes it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for name in os.listdir(self.downloads) if os.path.isdir(self.downloads) else []:
                path = os.path.join(self.downloads, name)
                if name.endswith(end) and os.path.getsize(path):
                    with open(path, "rb") as file:
                        data = file.read()
                    os.unlink(path)
                    return data
            self.value("0")
            time.sleep(0.05)
        return b""
