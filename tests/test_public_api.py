"""What users can import is exported in one place, documented and typed."""

import importlib
import inspect
import pkgutil
import re

import pytest

import botorch_bandits

ROOMS = [
    importlib.import_module(module.name)
    for module in pkgutil.iter_modules(botorch_bandits.__path__, "botorch_bandits.")
    if not module.name.endswith("__main__")
]
MODULES = [botorch_bandits, *(room for room in ROOMS if hasattr(room, "__all__"))]
REFERENCE = re.compile(r"\b([Ss]ee|[Aa]s for) (the (base )?class\b(?!\.\n\n)|:(class|meth|func):`)")


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
    for kin in value.__mro__:
        if not kin.__module__.startswith("botorch_bandits"):
            continue
        for name, member in vars(kin).items():
            function = function_of(member)
            if not inspect.isfunction(function) or function.__module__ != kin.__module__:
                continue
            if name == "__init__" and not hasattr(kin, "__dataclass_fields__"):
                own = inspect.getdoc(function) or ""
                yield name, function, f"{own}\n\n{inspect.getdoc(value)}" if own else own
            elif not name.startswith("_"):
                yield name, function, inspect.getdoc(getattr(kin, name))
    if hasattr(value, "__dataclass_fields__"):
        yield "its fields", value.__init__, inspect.getdoc(value)


def parameters_of(function):
    return [
        p
        for p in inspect.signature(function).parameters.values()
        if p.name not in ("self", "cls") and not p.name.startswith("_")
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_exports_are_listed_in_order_and_exist(module):
    names = list(module.__all__)
    assert len(set(names)) == len(names)
    assert all(hasattr(module, name) for name in names)


def test_the_package_exports_what_its_rooms_export():
    """A name of the package is the same thing in a room."""
    for name in botorch_bandits.__all__:
        value = getattr(botorch_bandits, name)
        assert any(getattr(room, name, None) is value for room in ROOMS), name


@pytest.mark.parametrize("label", PUBLIC)
def test_is_documented(label):
    value = PUBLIC[label]
    assert inspect.getdoc(value), label
    for name, function, text in functions_of(value):
        assert text, f"{label}.{name} has no docstring"
        if REFERENCE.search(text):
            continue  # the text that it names explains the other arguments
        parameters = [p.name for p in parameters_of(function)]
        unnamed = [p for p in parameters if not re.search(rf"\b{p}\b", text)]
        assert not unnamed, f"{label}.{name} does not say what {unnamed} is"


@pytest.mark.parametrize("label", PUBLIC)
def test_is_typed(label):
    for name, function, _ in functions_of(PUBLIC[label]):
        empty = inspect.Signature.empty
        untyped = [p.name for p in parameters_of(function) if p.annotation is empty]
        assert not untyped, f"{label}.{name}: {untyped}"
        assert inspect.signature(function).return_annotation is not empty, f"{label}.{name}"
