"""Look at the built documentation in a browser: ``python docs/check_site.py docs/_build/html``.

Loads every page at a wide and a narrow width, and reports errors in the console, images that do not
load, links to pages or anchors that do not exist, and pages that scroll sideways at the wide width.
It needs the extra ``browser`` (Playwright, which downloads nothing by itself) and a Chromium of the
system, found on ``PATH`` or given as ``--chromium``.
"""

import argparse
import shutil
import sys
import threading
from collections import defaultdict
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag

from playwright.sync_api import ConsoleMessage, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDE, NARROW, HEIGHT = 1440, 400, 900  # CSS pixels: a laptop and a phone
TIMEOUT = 120_000  # milliseconds, for a machine that is busy

# What a page contains: the ids of its elements, where its links lead, and images without a picture.
LOOK = """
() => ({
  ids: [...document.querySelectorAll("[id]")].map((element) => element.id),
  links: [...document.querySelectorAll("a[href]")].map((link) => link.href),
  missing: [...document.images].filter((image) => image.complete && image.naturalWidth === 0)
    .map((image) => image.src.slice(0, 100)),
  excess: document.documentElement.scrollWidth - document.documentElement.clientWidth,
})
"""


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Drop the message."""


def look_at(tab: Page, address: str, name: str) -> tuple[list[str], set[str], set[str]]:
    """Look at a page at both widths; return its faults, the ids in it, and its links."""
    faults: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        if message.type == "error":
            faults.append(f"the console says: {message.text}")

    tab.on("console", listen)
    tab.on("pageerror", lambda error: faults.append(f"a script fails: {error}"))
    tab.set_viewport_size({"width": WIDE, "height": HEIGHT})
    tab.goto(f"{address}/{name}", wait_until="load")
    seen = tab.evaluate(LOOK)
    if seen["excess"] > 1:  # pixels; one may come from rounding
        faults.append(f"the page is {seen['excess']} pixels wider than a window of {WIDE}")
    tab.set_viewport_size({"width": NARROW, "height": HEIGHT})
    missing = dict.fromkeys(seen["missing"] + tab.evaluate(LOOK)["missing"])
    faults += [f"an image does not load: {image}" for image in missing]
    links = {link for link in seen["links"] if link.startswith(address)}
    return faults, set(seen["ids"]), links


def check(folder: Path, chromium: str, names: list[str]) -> dict[str, list[str]]:
    """Serve a folder on this machine, and return the faults of its pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    faults: dict[str, list[str]] = defaultdict(list)
    ids: dict[str, set[str]] = {}
    links: dict[str, set[str]] = {}
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name in names:
                tab = browser.new_page()
                tab.set_default_timeout(TIMEOUT)
                faults[name], ids[name], links[name] = look_at(tab, address, name)
                tab.close()
            browser.close()
    finally:
        server.shutdown()
        server.server_close()
    for name in names:
        for link in sorted(links[name]):
            path, anchor = urldefrag(link)
            target = unquote(path.removeprefix(address).lstrip("/").split("?")[0]) or "index.html"
            if not (folder / target).is_file():
                faults[name].append(f"a link leads nowhere: {target}")
            elif anchor and target in ids and unquote(anchor) not in ids[target]:
                faults[name].append(f"a link leads to an anchor that is missing: {target}#{anchor}")
    return faults


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if a page has a fault."""
    parser = argparse.ArgumentParser(description="Look at the built documentation in a browser.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs/_build/html")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    parser.add_argument("--chromium", default=found, help="the browser's program")
    options = parser.parse_args(arguments)
    if options.chromium is None:
        parser.error(f"found none of {', '.join(BROWSERS)}; give --chromium PATH")
    pages = (path.relative_to(options.folder) for path in options.folder.rglob("*.html"))
    names = sorted(str(path) for path in pages if path.parts[0] != "_static")
    if not names:
        parser.error(f"{options.folder} has no pages; build them with python -m sphinx")
    faults = check(options.folder, options.chromium, names)
    for name in names:
        for fault in faults[name]:
            print(f"{name}: {fault}")
    bad = sum(bool(faults[name]) for name in names)
    print(f"{len(names)} pages: {bad} with faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
