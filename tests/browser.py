"""Headless Chromium for tests, driven over chromedriver's HTTP interface, W3C WebDriver.

Own code instead of selenium (12 MB and a dozen packages) or playwright-core (which needs node): what the tests do is
six commands, and a machine without Chromium, as CI's, would install either for nothing.
"""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
MISSING = "" if CHROMIUM and DRIVER else "needs chromium and chromedriver (apt-get install chromium chromium-driver)"
FLAGS = (
    "--headless",
    "--no-sandbox",  # tests run as root in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SETTLE_S, START_S = 60.0, 60.0  # a busy machine's
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element's reference, by the standard
TOO_WIDE = """
return [...document.querySelectorAll("body *")].filter((one) =>
  !one.closest("figure .table, .strip div, .hidden, .skip, svg, script, style, noscript") && one.checkVisibility() &&
  (one.getBoundingClientRect().right > innerWidth ||
   one.clientWidth && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "hidden")
).map((one) => `${one.tagName} ${one.className}: ${one.textContent.slice(0, 30)}`);
"""
CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
const rgb = (colour, under) => {
  canvas.fillStyle = under; canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (colour) => {
  const [r, g, b] = colour.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [x, y] = [light(a), light(b)].sort((m, n) => n - m);
  return (x + 0.05) / (y + 0.05);
};
const grounds = (one) => one ? [...grounds(one.parentElement), getComputedStyle(one).backgroundColor] : [];
const ground = (one) => grounds(one).reduce((under, over) => `rgb(${rgb(over, under).join(" ")})`, "white");
const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() &&
  [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) &&
  !one.closest("script, style, noscript, option"));
return texts.map((one) => {
  const under = ground(one.closest("svg")?.parentElement ?? one);
  const style = getComputedStyle(one);
  const colour = one.closest("svg") && style.fill !== "none" ? style.fill : style.color;
  return [contrast(rgb(colour, under), rgb(under, under)), one.textContent.trim().slice(0, 40)];
});
"""


class Browser:
    """A browser with a window of its own; for use in a `with`."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._size = (width, height)
        self._opened = ""

    def __enter__(self) -> "Browser":
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        assert DRIVER is not None
        self._driver = subprocess.Popen(
            [DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            self._base = f"http://127.0.0.1:{self._port()}"
            width, height = self._size
            arguments = [*FLAGS, f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}"]
            chrome = {"binary": CHROMIUM, "args": arguments}
            wanted = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._base += f"/session/{made['sessionId']}"
            self.emulate(width, height)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._send("DELETE", "")
        finally:
            self._end()

    def emulate(self, width: int, height: int, theme: str = "light", phone: bool = False) -> None:
        """The size of the window's inside in CSS pixels (a real window is never as narrow as a phone), and what the
        system's theme is said to be."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"name": "prefers-color-scheme", "value": theme}
        self._devtools("Emulation.setEmulatedMedia", {"features": [feature]})

    def open(self, path: Path | str, hash: str = "") -> None:
        """Opens a file or an address, anew also where only the part behind # differs."""
        address = path if isinstance(path, str) else path.resolve().as_uri()
        if address == self._opened:  # it would only be scrolled
            self._send("POST", "/url", {"url": "about:blank"})
        self._send("POST", "/url", {"url": address + hash})
        self._opened = address

    def js(self, script: str, *arguments: object) -> Any:
        """What a function body returns."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script: str, expected: object, *arguments: object) -> None:
        """Waits for a function body to return `expected`: a page answers a key or a click in tasks of its own. What
        it threw counts as another answer."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            try:
                found = self.js(script, *arguments)
            except AssertionError as error:
                found = error
            if found == expected:
                return
            assert time.monotonic() < deadline, f"{script}: {found!r}, not {expected!r}"
            time.sleep(0.02)

    def press(self, *keys: str) -> None:
        """Presses keys one after the other: "Tab", "Enter", or a character."""
        codes = {"Tab": "\ue004", "Enter": "\ue007", "Space": " "}
        presses = [{"type": kind, "value": codes.get(key, key)} for key in keys for kind in ("keyDown", "keyUp")]
        self._send("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": presses}]})

    def click(self, selector: str) -> None:
        """Clicks on the first element of a CSS selector as a mouse would."""
        found = self._send("POST", "/element", {"using": "css selector", "value": selector})
        self._send("POST", f"/element/{found[ELEMENT]}/click", {})

    def point(self, x: float, y: float) -> None:
        """Moves the mouse there, in CSS pixels of the window's inside."""
        self._devtools("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})

    def screenshot(self, path: Path) -> None:
        """Writes what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self._send("GET", "/screenshot")))

    def complaints(self) -> list[str]:
        """What the console has said since the last call: errors of scripts, violations of the policy."""
        return [entry["message"] for entry in self._send("POST", "/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """The URLs of all requests since the last call."""
        entries = self._send("POST", "/se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

    def _devtools(self, command: str, parameters: dict[str, Any]) -> None:
        self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _port(self) -> int:
        assert self._driver.stdout is not None
        deadline = time.monotonic() + START_S
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                return int(line.split("port")[1].strip(" .\n"))
            assert time.monotonic() < deadline, "chromedriver does not start"
        raise AssertionError("chromedriver ended before it had started")

    def _send(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from None

    def _end(self) -> None:
        self._driver.terminate()
        self._driver.wait(10)
        if self._driver.stdout is not None:
            self._driver.stdout.close()
        self._profile.cleanup()
