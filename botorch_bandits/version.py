"""The package's version, readable without importing anything else.

Packaging and the documentation read it here.
"""

__version__ = "0.1.0"
