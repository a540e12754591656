"""The part of the package's metadata that needs its address: URLs, and links in the readme.

Everything else is in ``pyproject.toml``, also the address: ``repository`` of
``[tool.botorch_bandits]``. While that is empty, no URL is made up, and links stay as they are.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
# an image or a link whose target is neither an address nor an anchor of the same page
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose links lead to the repository, for it is read elsewhere, too.

    Args:
        text: With links relative to the root of the repository.
        repository: Its address; if it is empty, links stay as they are.
        tag: Of the version whose files are meant.
    """
    if not repository:
        return text

    def lead(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({repository.rstrip('/')}/{kind}/{tag}/{match[3]})"

    return LINK.sub(lead, text)


def project_urls(repository: str) -> dict[str, str]:
    """Return the addresses that the package's metadata name; none without a repository.

    Args:
        repository: Its address.
    """
    if not repository:
        return {}
    base = repository.rstrip("/")
    return {
        "Repository": base,
        "Documentation": f"{base}/tree/main/docs",
        "Changelog": f"{base}/blob/main/CHANGELOG.md",
        "Issues": f"{base}/issues",
    }


def metadata() -> dict[str, Any]:
    """Return what is added to the metadata of ``pyproject.toml``.

    Raises:
        ValueError: If ``repository`` is no address.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    repository = settings["botorch_bandits"]["repository"]
    if repository and not re.fullmatch(r"https://[^\s/]+/\S+", repository):
        raise ValueError(
            f"repository in pyproject.toml is {repository!r}; write the address of the repository, "
            "https://..., or leave it empty."
        )
    source = (ROOT / "botorch_bandits" / "version.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'__version__ = "([^"]+)"', source)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return {
        "long_description": absolute_links(readme, repository, f"v{version}"),
        "long_description_content_type": "text/markdown",
        "project_urls": project_urls(repository),
    }


if __name__ == "__main__":
    from setuptools import setup

    setup(**metadata())
