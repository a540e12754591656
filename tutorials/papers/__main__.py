"""Run the command line of the experiments with ``python tutorials/papers``.

When started as a folder, it adds the parent folder to the path, so that ``papers`` can be imported
from anywhere. Processes that it starts inherit the path.
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent

if not __package__:
    # Python puts the folder itself on the path, but its modules belong to the package
    sys.path[:] = [
        str(FOLDER.parent),
        *(entry for entry in sys.path if not entry or Path(entry).resolve() != FOLDER),
    ]

if __name__ == "__main__":
    from papers.runner import main

    sys.exit(main())
