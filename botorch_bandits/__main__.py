"""Run the command line with ``python -m botorch_bandits``.

It does what ``botorch-bandits`` does, even if scripts are not on the path.
"""

import sys

from botorch_bandits.cli import main

sys.exit(main())
