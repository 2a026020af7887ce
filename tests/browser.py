"""A real headless Chromium, driven through its debugging pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

DEMANDED = "COMPILEGUARD_BROWSER"
"""Set to ``required``, this variable makes a missing browser a failure."""
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def executable() -> str:
    """Find the browser, or skip, or fail where one is demanded."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        reason = "no Chromium is installed (Debian: apt-get install chromium)"
        if os.environ.get(DEMANDED) == "required":
            pytest.fail(f"{DEMANDED}=required, but {reason}")
        pytest.skip(reason)
    return found


class Page:
    """One tab: loads a file, evaluates JavaScript in it, and hears what it complains of."""

    def __init__(self, to_browser: IO[bytes], from_browser: IO[bytes]) -> None:
        self._to, self._from = to_browser, from_browser
        self._count = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        attached = self.command("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        self._to.flush()
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def load(self, file: Path) -> None:
        self.events.clear()
        self.command("Page.navigate", url=file.as_uri())
        while not self.said("Page.loadEventFired"):
            self._read()

    def js(self, expression: str) -> Any:
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int, text: str = "") -> None:
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        down = "keyDown" if text else "rawKeyDown"
        self.command("Input.dispatchKeyEvent", type=down, text=text, **common)
        self.command("Input.dispatchKeyEvent", type="keyUp", **common)

    def show(self, *, width: int = 1000, height: int = 1200, scheme: str = "light") -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def screenshot(self, file: Path) -> None:
        data = self.command("Page.captureScreenshot", format="png")["data"]
        file.write_bytes(base64.b64decode(data))

    def said(self, method: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") == method]

    def complaints(self) -> list[str]:
        """Give errors of scripts, refusals of the policy, and messages to the console."""
        self.js("0")  # so that everything earlier has come
        found = self.said("Runtime.exceptionThrown") + self.said("Runtime.consoleAPICalled")
        return [json.dumps(one) for one in found + self.said("Log.entryAdded")]

    def requested(self) -> list[str]:
        return [str(one["request"]["url"]) for one in self.said("Network.requestWillBeSent")]

    def _read(self) -> dict[str, Any]:
        parts = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            assert byte, "the browser ended"
            parts += byte
        message: dict[str, Any] = json.loads(parts)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def opened(profile: Path) -> Iterator[Page]:
    """Start the browser, and end it afterwards."""
    command = [executable(), *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    # The browser reads from descriptor 3 and writes to 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{in_read} 4>&{out_write}', "bash", *command]
    child = subprocess.Popen(
        shell,
        pass_fds=(in_read, out_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(in_read)
    os.close(out_write)
    try:
        with os.fdopen(in_write, "wb") as to_browser, os.fdopen(out_read, "rb") as from_browser:
            yield Page(to_browser, from_browser)
    finally:
        child.terminate()
        child.wait(timeout=20)
