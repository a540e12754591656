"""Lets a package import its names when they are first used, as in PEP 562.

Otherwise, a package that lists many names would import PyTorch and BoTorch, which takes seconds,
even for users who want a name that needs neither, such as its version.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def import_late(
    package: str, module_of: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    No name may be the same as that of a module in the package, because importing the module would
    replace the name.

    Args:
        package: The ``__name__`` of the package.
        module_of: The module, without the package's name, from which each name comes.
        modules: Modules in the package that need no import of their own.

    Example:
        >>> get, list_names = import_late("botorch_bandits", {"Box": "domains"})
        >>> get("Box")
        <class 'botorch_bandits.domains.Box'>
    """
    namespace = vars(sys.modules[package])

    def get(name: str) -> object:
        if name in module_of:
            value = getattr(import_module(f"{package}.{module_of[name]}"), name)
            namespace[name] = value  # found without this function the next time
            return value
        if name in modules:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def list_names() -> list[str]:
        return sorted({*namespace, *module_of, *modules})

    return get, list_names
