"""What users can import is exported in one place, documented and typed."""

import importlib
import inspect
import pkgutil
import re

import pytest

import botorch_bandits

MODULES = [
    botorch_bandits,
    *(
        importlib.import_module(module.name)
        for module in pkgutil.iter_modules(botorch_bandits.__path__, "botorch_bandits.")
        if module.ispkg and not module.name.endswith(("experiments", "reproduction"))
    ),
]
# such docstrings lead to the one that has the arguments
REFERENCE = re.compile(r"[Ss]ee |[Aa]s for |[Aa]rguments are those of|likewise|Likewise|Refuse")


def collect_public():
    """Return classes and functions by the names under which they are exported."""
    found = {}
    for module in MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                found.setdefault(
                    value, f"{module.__name__.removeprefix('botorch_bandits.')}.{name}"
                )
    return {label: value for value, label in found.items()}


PUBLIC = collect_public()


def function_of(member):
    if isinstance(member, classmethod | staticmethod):
        return member.__func__
    return member.fget if isinstance(member, property) else member


def functions_of(value):
    """Yield names, functions and docstrings of a function, or of what a class itself defines."""
    if inspect.isfunction(value):
        yield value.__name__, value, inspect.getdoc(value)
        return
    for name, member in vars(value).items():
        function = function_of(member)
        if not inspect.isfunction(function) or function.__module__ != value.__module__:
            continue
        if name == "__init__" and not hasattr(value, "__dataclass_fields__"):
            own = function.__doc__ or ""
            is_short = own in ("", "See the class.")
            yield name, function, inspect.getdoc(value) if is_short else f"{own} See the class."
        elif not name.startswith("_"):
            yield name, function, inspect.getdoc(getattr(value, name))


def parameters_of(function):
    return [
        p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_exports_are_listed_in_order_and_exist(module):
    names = list(module.__all__)
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)


def test_the_package_exports_what_its_rooms_export():
    """A name of the package is the same thing in a room."""
    rooms = [
        importlib.import_module(module.name)
        for module in pkgutil.iter_modules(botorch_bandits.__path__, "botorch_bandits.")
        if not module.name.endswith("__main__")
    ]
    for name in botorch_bandits.__all__:
        value = getattr(botorch_bandits, name)
        assert any(getattr(room, name, None) is value for room in rooms), name


@pytest.mark.parametrize("label", PUBLIC)
def test_is_documented(label):
    value = PUBLIC[label]
    assert inspect.getdoc(value), label
    for name, function, text in functions_of(value):
        assert text, f"{label}.{name} has no docstring"
        unnamed = [p.name for p in parameters_of(function) if not re.search(rf"\b{p.name}\b", text)]
        assert not unnamed or REFERENCE.search(text), (
            f"{label}.{name} does not say what {unnamed} is"
        )


@pytest.mark.parametrize("label", PUBLIC)
def test_is_typed(label):
    for name, function, _ in functions_of(PUBLIC[label]):
        empty = inspect.Signature.empty
        untyped = [p.name for p in parameters_of(function) if p.annotation is empty]
        assert not untyped, f"{label}.{name}: {untyped}"
        assert inspect.signature(function).return_annotation is not empty, f"{label}.{name}"
