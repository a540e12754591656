"""Look at the built documentation in a browser: ``python docs/check_site.py docs/_build/html``.

Every page is loaded once and laid out at three widths, with all details open. Listings of source
code are alike, and so are the pages of classes: the longest stand for all, unless ``--all`` asks
for each. It needs the extra ``browser`` (Playwright, which downloads nothing by itself) and a
Chromium of the system, found on ``PATH`` or given as ``--chromium``.
"""

import argparse
import asyncio
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1440, 1100, 400)
HEIGHT = 900
TABS = 4
ALIKE = {"_modules": 1, "classes": 20}  # folders, and how many of their pages are enough
TIMEOUT = 120_000  # milliseconds, for a machine that is busy
SMALLEST_TEXT = 12.0  # CSS pixels, which are 9 pt
SMALLEST_SCALE = 0.595  # of an image, on the page against its own width: 60%, less rounding

# Returns what is wrong with the layout, as sentences, and what scrolls in a box of its own.
LAYOUT = """
([smallestText, smallestScale]) => {
  const faults = [];
  const boxes = [];
  const root = document.documentElement;
  // the first words of an element
  const start = (element) => element.innerText.trim().replace(/\\s+/g, " ").slice(0, 60);
  if (root.scrollWidth > root.clientWidth + 1) {
    faults.push(`the page is ${root.scrollWidth} pixels wide, in a window of ${root.clientWidth}`);
  }
  // the box in which an element scrolls, if there is one
  const boxOf = (element) => {
    for (let box = element.parentElement; box && box !== document.body; box = box.parentElement) {
      if (["auto", "scroll"].includes(getComputedStyle(box).overflowX)) return box;
    }
    return null;
  };
  const scrolls = (element) => {
    const box = boxOf(element);
    if (!box || box.scrollWidth <= box.clientWidth + 1) return false;
    if (element.tagName === "IMG") {
      const name = element.src.split("/").pop();
      boxes.push(name);
      // phones hide the scroll bar
      const line = parseFloat(getComputedStyle(box, "::after").height);
      if (!(line > 8)) faults.push(`no line says that ${name.slice(0, 40)} scrolls`);
    }
    if (box.offsetHeight - box.clientHeight < 4) {
      faults.push(`a scroll bar cannot be seen: ${start(box) || element.src}`);
    }
    return true;
  };
  const article = document.querySelector("article") || document.body;
  for (const details of article.querySelectorAll("details")) details.open = true;
  const column = article.getBoundingClientRect();
  for (const table of article.querySelectorAll("table")) {
    if (table.parentElement.closest("table")) continue;
    const edge = (boxOf(table) || table).getBoundingClientRect().right;
    if (scrolls(table)) {
      faults.push(`a table is wider than the text: ${start(table)}`);
    } else if (edge > column.right + 1) {
      faults.push(`a table sticks out of its column: ${start(table)}`);
    }
    for (const cell of table.querySelectorAll("th, td")) {
      if (cell.scrollWidth > cell.clientWidth + 1) {
        faults.push(`a cell is cut off or sticks out: ${start(cell)}`);
        break;
      }
    }
    const texts = [...table.querySelectorAll("th, td, td p, td code, td a")];
    const sizes = texts.map((text) => parseFloat(getComputedStyle(text).fontSize));
    if (Math.min(...sizes) < smallestText) {
      faults.push(`a table has text of ${Math.min(...sizes)} pixels: ${start(table)}`);
    }
  }
  for (const image of article.querySelectorAll("img")) {
    const name = image.src.startsWith("data:") ? "an embedded image" : image.src.split("/").pop();
    if (!image.alt.trim()) faults.push(`${name} has no alternative text`);
    if (!image.complete || image.naturalWidth === 0) faults.push(`${name} is not shown`);
    const scale = image.getBoundingClientRect().width / image.naturalWidth;
    const vector = /\\.svg$|^data:image\\/svg/.test(image.src);
    if (!vector && scale < smallestScale) {
      faults.push(`${name} is shown at ${Math.round(100 * scale)}% of its width`);
    }
    scrolls(image);
  }
  if (article.querySelector("merror, .MathJax, :is(span, div).math:not(:has(math))")) {
    faults.push("a formula is not rendered");
  }
  for (const brand of document.querySelectorAll(".sidebar-brand-text, .header-center .brand")) {
    const words = document.createRange();
    words.selectNodeContents(brand);
    const lines = new Set([...words.getClientRects()].map((box) => Math.round(box.top)));
    if (lines.size > 1) faults.push("the title is broken into lines");
  }
  return [faults, boxes];
}
"""


@dataclass
class Page:
    """What was seen of one page."""

    name: str
    faults: dict[str, list[str]] = field(default_factory=dict)
    boxes: dict[int, list[str]] = field(default_factory=dict)

    def add(self, fault: str, width: int | None = None) -> None:
        """Take a fault down, at a width or at all of them."""
        at = self.faults.setdefault(fault, [])
        if width is not None:
            at.append(str(width))


class Handler(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def do_GET(self) -> None:
        """Answer, and have no icon for a page that names none."""
        if self.path == "/favicon.ico":
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def end_headers(self) -> None:
        """Let the browser keep what many pages share."""
        self.send_header("Cache-Control", "max-age=600")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Drop the message."""


def find_chromium() -> str | None:
    """Return the path of a browser of the system, or None."""
    return next((path for path in map(shutil.which, BROWSERS) if path), None)


def pages_of(folder: Path, every: bool = False) -> list[str]:
    """Return the addresses of all pages in a folder, relative to it; of pages alike the longest."""
    pages = [path for path in folder.rglob("*.html") if folder / "_static" not in path.parents]
    for part, number in ALIKE.items() if not every else ():
        alike = [path for path in pages if folder / part in path.parents]
        longest = sorted(alike, key=lambda path: path.stat().st_size)[-number:]
        pages = [path for path in pages if path not in alike or path in longest]
    return sorted(str(path.relative_to(folder)) for path in pages)


async def look_at(tab: Any, address: str, name: str, screenshots: Path | None) -> Page:  # noqa: C901 - a fault of each kind
    """Load a page and lay it out at every width."""
    page = Page(name)
    home = urlsplit(address).netloc

    def on_request(request: Any) -> None:
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.netloc != home:
            page.add(f"asks {parts.scheme}://{parts.netloc} for something")

    def on_response(response: Any) -> None:
        if response.status >= 400:
            page.add(f"{urlsplit(response.url).path} answers {response.status}")

    def on_failure(request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # as an icon is, when a tab goes on
            page.add(f"{request.url} failed: {request.failure}")

    def on_console(message: Any) -> None:
        if message.type in ("error", "warning"):
            page.add(f"the console says: {message.text}")

    listeners = {
        "request": on_request,
        "response": on_response,
        "requestfailed": on_failure,
        "console": on_console,
        "pageerror": lambda error: page.add(f"a script fails: {error}"),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)
    await tab.goto(f"{address}/{name}", wait_until="load")
    for width in WIDTHS:
        await tab.set_viewport_size({"width": width, "height": HEIGHT})
        faults, page.boxes[width] = await tab.evaluate(LAYOUT, [SMALLEST_TEXT, SMALLEST_SCALE])
        for fault in faults:
            page.add(fault, width)
        if screenshots is not None:
            target = screenshots / f"{name.replace('/', '-').removesuffix('.html')}-{width}.png"
            await tab.screenshot(path=target, full_page=True)
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    return page


async def look_at_all(
    address: str, names: list[str], chromium: str, screenshots: Path | None
) -> list[Page]:
    """Load pages in several tabs of one browser."""
    from playwright.async_api import async_playwright

    waiting = list(reversed(names))
    seen: list[Page] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium,
            # nothing but this machine has an address, and scroll bars are drawn as readers see them
            args=[
                "--no-sandbox",
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            ],
            ignore_default_args=["--hide-scrollbars"],
        )

        async def work() -> None:
            tab = await browser.new_page()
            tab.set_default_timeout(TIMEOUT)
            while waiting:
                seen.append(await look_at(tab, address, waiting.pop(), screenshots))
            await tab.close()

        await asyncio.gather(*(work() for _ in range(min(TABS, len(names)))))
        await browser.close()
    return sorted(seen, key=lambda page: page.name)


def check(folder: Path, chromium: str, names: list[str], screenshots: Path | None) -> list[Page]:
    """Serve a folder on this machine, and return what was seen of its pages."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        return asyncio.run(look_at_all(address, names, chromium, screenshots))
    finally:
        server.shutdown()
        server.server_close()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; 1 if a page has a fault."""
    parser = argparse.ArgumentParser(description="Look at the built documentation in a browser.")
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs/_build/html")
    parser.add_argument("--chromium", default=find_chromium(), help="the browser's program")
    parser.add_argument("--only", nargs="+", metavar="PAGE", help="pages, such as loop.html")
    parser.add_argument("--screenshots", type=Path, help="a folder for pictures of all pages")
    parser.add_argument("--boxes", action="store_true", help="name the pictures that scroll")
    parser.add_argument("--all", action="store_true", help="also each of the pages that are alike")
    options = parser.parse_args(arguments)
    if options.chromium is None:
        parser.error(f"found none of {', '.join(BROWSERS)}; give --chromium PATH")
    names = options.only or pages_of(options.folder, options.all)
    if not names:
        parser.error(f"{options.folder} has no pages; build them with python -m sphinx")
    if options.screenshots is not None:
        options.screenshots.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    pages = check(options.folder, options.chromium, names, options.screenshots)
    for page in pages:
        for fault, widths in page.faults.items():
            print(f"{page.name}: {fault}" + (f" (at {', '.join(widths)})" if widths else ""))
    for width in WIDTHS:
        boxes = [(page.name, box) for page in pages for box in page.boxes.get(width, [])]
        if options.boxes:
            print(*(f"{width} pixels: {name}: {box}" for name, box in boxes), sep="\n")
        print(f"{width} pixels: {len(boxes)} pictures scroll in a box of their own")
    bad = sum(bool(page.faults) for page in pages)
    seconds = time.monotonic() - started
    print(f"{len(pages)} pages at {len(WIDTHS)} widths in {seconds:.0f} s: {bad} with faults")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
