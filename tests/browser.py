"""A headless browser for tests, spoken to over a pipe in the DevTools protocol.

No driver, no port, no network, and nothing to install but the browser itself.
Needs Chromium or Chrome on the path; AVEM_BROWSER names another program.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests run as root in containers, where the sandbox cannot start
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)
_BEGIN = """
import os, sys
there, back = (os.dup(int(number)) for number in sys.argv[1:3])
os.dup2(there, 3)
os.dup2(back, 4)
for number in (3, 4):  # which dup2 does not do where it has nothing to move
    os.set_inheritable(number, True)
os.execv(sys.argv[3], sys.argv[3:])
"""
# The browser reads from file 3 and writes to file 4.
_PATIENCE = 60.0
"""Seconds to wait for any answer."""


def find_browser():
    """The program to run, or None."""
    wanted = os.environ.get("AVEM_BROWSER")
    names = [wanted] if wanted else _NAMES
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One browser with one page."""

    def __init__(self, program=None):
        self.home = tempfile.mkdtemp(prefix="avem-browser-")
        there, self._out = os.pipe()
        self._in, back = os.pipe()
        program = program or find_browser()
        options = (*_OPTIONS, f"--user-data-dir={self.home}", "about:blank")
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _BEGIN, str(there), str(back), program, *options],
            pass_fds=(there, back),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there)
        os.close(back)
        self._buffer, self._number, self._session = b"", 0, None
        self.events = []
        try:
            self._attach()
        except RuntimeError:
            self.close()
            raise

    def _attach(self):
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        found = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self):
        self._session = None
        with contextlib.suppress(OSError, RuntimeError):
            self.send("Browser.close")
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    # --- the protocol ---------------------------------------------------------------------------

    def send(self, method, **params):
        """Ask for something, and return the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            answer = self._read(until)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
        raise RuntimeError(f"{method}: no answer")

    def _read(self, until):
        """The next message; what happened by itself is kept in `events`."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                return {}
            piece = os.read(self._in, 1 << 20)
            if not piece:
                raise RuntimeError("the browser has ended")
            self._buffer += piece
        text, self._buffer = self._buffer.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    # --- pages ----------------------------------------------------------------------------------

    def open(self, path, script=True):
        """Load a file; returns the seconds until it was ready to use."""
        self.events.clear()
        self.send("Emulation.setScriptExecutionDisabled", value=not script)
        began = time.monotonic()
        self.send("Page.navigate", url=Path(path).resolve().as_uri())
        until = began + _PATIENCE
        while not any(e["method"] == "Page.loadEventFired" for e in self.events):
            if time.monotonic() > until:
                raise RuntimeError("the page did not load")
            self._read(until)
        if script:
            self.settle()
        return time.monotonic() - began

    def settle(self):
        """Until what is to be drawn has been drawn, and what is to be said has been said."""
        self.run(
            "new Promise(done => setTimeout(() => "
            "requestAnimationFrame(() => requestAnimationFrame(done)), 200))"
        )

    def run(self, code):
        """The value of a JavaScript expression."""
        found = self.send(
            "Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:500])
        return found["result"].get("value")

    def complaints(self):
        """Errors and warnings of the console since the page was opened."""
        found = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
        return found

    def requests(self):
        """Addresses that the page asked for, but for what is in it."""
        urls = [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith("data:")]

    # --- hands ----------------------------------------------------------------------------------

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def press(self, key, modifiers=0):
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers, **text)

    # --- looks ----------------------------------------------------------------------------------

    def look(self, width=1280, height=900, dark=False, scale=1, media="", phone=False):
        """The size of the window, and how the page is wanted."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def picture(self, path=None, whole=False):
        """A PNG of the window, or of the whole page; written to `path` if there is one."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        data = base64.b64decode(found["data"])
        if path is not None:
            Path(path).write_bytes(data)
        return data

    def pdf(self, path=None):
        """The page as it is printed."""
        found = self.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        data = base64.b64decode(found["data"])
        if path is not None:
            Path(path).write_bytes(data)
        return data
