"""Run the command line with ``python -m botorch_bandits``."""

import sys

from botorch_bandits.cli import main

sys.exit(main())
