"""Run the benchmarks with ``python tests/benchmarks``, and the campaign of faults.

Started as a folder, it puts the folder above and that of the papers on the path, so that both are
found from anywhere; processes that it starts inherit the path.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

if not __package__:
    # Python put the folder itself on the path: its modules are those of a package, not of their own
    sys.path[:] = [
        str(FOLDER.parent),
        str(FOLDER.parents[1] / "tutorials"),
        *(entry for entry in sys.path if not entry or Path(entry).resolve() != FOLDER),
    ]

if __name__ == "__main__":
    from benchmarks.commands import main

    sys.exit(main())
