"""Run the tutorials, in full or in a few seconds each.

``python tutorials/run.py`` executes all notebooks from top to bottom and writes their outputs back.
``python tutorials/run.py --smoke`` executes short versions and writes nothing.
``python tutorials/run.py 04_changing_environment`` executes one; its number alone will do.

Needs the extra ``tutorials``. ``08_ax`` needs Ax as well, and is left out without it.
"""

import argparse
import asyncio
import importlib.util
import os
import re
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NEEDED_MODULES = {"08_ax": "ax"}
SECONDS_PER_CELL = 900
JUPYTER_FOLDERS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")


def main(arguments: list[str] | None = None) -> int:
    """Run notebooks; return 0 if all ran, else 1."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks; all if omitted")
    parser.add_argument("--smoke", action="store_true", help="short runs; nothing is written")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="notebooks at a time")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}; give at least 1")
    try:
        paths = find(options.names)
    except ValueError as error:
        parser.error(str(error))

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # sums round differently with more threads
    os.environ["BOTORCH_BANDITS_SMOKE"] = "1" if options.smoke else "0"
    with tempfile.TemporaryDirectory() as scratch:
        for name in JUPYTER_FOLDERS:  # nothing of the user's Jupyter settings
            os.environ[name] = str(Path(scratch) / name.lower())
        return asyncio.run(run_all(paths, options.smoke, options.jobs, scratch))


def find(names: list[str]) -> list[Path]:
    """Return the notebooks of these names; without names, all that can run here."""
    notebooks = {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}
    if names:
        by_number = {stem.split("_")[0]: path for stem, path in notebooks.items()}
        known = by_number | notebooks
        stems = [Path(name).name.removesuffix(".ipynb") for name in names]
        if unknown := [stem for stem in stems if stem not in known]:
            raise ValueError(f"no notebook {unknown[0]!r}; there are {', '.join(notebooks)}")
        return list(dict.fromkeys(known[stem] for stem in stems))
    for stem, module in NEEDED_MODULES.items():
        if stem in notebooks and importlib.util.find_spec(module) is None:
            print(f"{stem}: left out, because it needs the module {module} (docs/{module}.md)")
            del notebooks[stem]
    return list(notebooks.values())


async def run_all(paths: list[Path], smoke: bool, jobs: int, scratch: str) -> int:
    """Execute some notebooks at a time, each in a kernel of its own; report on each."""
    slots = asyncio.Semaphore(jobs)

    async def run_one(path: Path) -> bool:
        async with slots:
            started = time.monotonic()
            fault = await execute(path, smoke, scratch)
            seconds = time.monotonic() - started
        verdict = "passed" if fault is None else "FAILED"
        print(f"{path.stem}: {verdict} in {seconds:.0f} s", flush=True)
        if fault is not None:
            print(fault, file=sys.stderr, flush=True)
        return fault is None

    return 0 if all(await asyncio.gather(*map(run_one, paths))) else 1


async def execute(path: Path, smoke: bool, scratch: str) -> str | None:
    """Execute a notebook, and write it back unless it is a smoke run; return what went wrong."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_PER_CELL,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": scratch}},
    )
    try:
        await client.async_execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colors
    if smoke:
        return None
    normalize(notebook)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.get("name") == "stderr":
                return f"{path.name}, {cell.id} wrote to stderr, so nothing is saved: {output.text}"
    nbformat.write(notebook, path)
    return None


def normalize(notebook: dict) -> None:
    """Take out what differs between machines and runs."""
    notebook["metadata"] = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    notebook["nbformat"], notebook["nbformat_minor"] = 4, 5
    for i, cell in enumerate(notebook["cells"]):
        cell["id"], cell["metadata"] = f"cell-{i:02d}", {}
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output["metadata"] = {}


if __name__ == "__main__":
    sys.exit(main())
