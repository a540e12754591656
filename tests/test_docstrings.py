"""References in docstrings are replaced by what they refer to, when a module is imported."""

import pickle
import subprocess
import sys
import types

import pytest

import botorch_bandits
from botorch_bandits.docstrings import fill_in_docstrings

SOURCE = '''
from dataclasses import dataclass


class Base:
    """A base.

    Args:
        size: How large it is,
            in pixels.
        color: Of the border.

    Attributes:
        area: Its area,
            in square pixels.
    """

    def __init__(self, size, color):
        """See the class."""

    @property
    def area(self):
        """See the class."""

    def draw(self, where, how="fast"):
        """Draw it.

        Args:
            where: On which canvas.
            how: Either ``"fast"`` or ``"well"``.

        Returns:
            The number of strokes.

        Raises:
            ValueError: If there is no canvas.
        """

    @property
    def name(self):
        """What it is called."""


class Child(Base):
    """A child.

    Args:
        size: See :class:`Base`.
        color: See there; red if omitted.
        weight: In grams.
        noise: See :class:`Nowhere`.
    """

    def __init__(self, size, color=None, weight=1.0, noise=None):
        """Check the weight."""

    def draw(self, where, how="fast"):
        """Draw it twice; see the base class."""

    @property
    def name(self):
        """See the base class."""


@dataclass
class Point:
    """A point.

    Attributes:
        x: To the right.
        y: Upwards.
    """

    x: float
    y: float = 0.0


@dataclass
class Marker(Point):
    """A point that is drawn.

    Attributes:
        color: Of its border.
    """

    color: str = "red"


@dataclass
class Copy(Point):
    """Another point."""


class Grandchild(Child):
    """A grandchild.

    Args:
        size: ``s``; see :class:`~package.room.Child`.
    """

    def __init__(self, size, *, weight):
        """See the class."""

    def draw(self, where, how="fast"):
        """See :meth:`Base.draw`; with a brush."""


def paint(base, where):
    """Paint it.

    Args:
        base: What to paint; see :class:`Base`.
        where: As for :meth:`Base.draw`.
    """


def further(size):
    """Return ``size``; see :func:`paint`."""


def there(where):
    """Do what :meth:`Base.draw` does; see there."""


def nowhere(size):
    """Return ``size``; see there."""
'''


@pytest.fixture(scope="module")
def shapes():
    module = types.ModuleType("shapes")
    sys.modules["shapes"] = module
    module.__dict__["__name__"] = "shapes"
    exec(SOURCE, module.__dict__)
    fill_in_docstrings("shapes")
    yield module
    del sys.modules["shapes"]


def test_arguments_take_the_text_of_the_class_that_is_named(shapes):
    assert shapes.Child.__doc__.splitlines()[3:] == [
        "    size: How large it is,",
        "        in pixels.",
        "    color: Of the border. Red if omitted.",
        "    weight: In grams.",
        "    noise: See :class:`Nowhere`.",  # cannot be found, so it stays
    ]


def test_a_text_before_the_reference_is_kept(shapes):
    assert "    size: ``s``: how large it is,\n        in pixels." in shapes.Grandchild.__doc__
    assert "    where: On which canvas." in shapes.paint.__doc__


def test_constructors_explain_their_arguments(shapes):
    text = shapes.Base.__init__.__doc__
    arguments = "    size: How large it is,\n        in pixels.\n    color: Of the border."
    assert text == f"A base.\n\nArgs:\n{arguments}"
    assert shapes.Child.__init__.__doc__.startswith(
        "Check the weight.\n\nArgs:\n    size: How large"
    )
    # an argument that only a base class explains, and none that it does not have
    assert shapes.Grandchild.__init__.__doc__.endswith("    weight: In grams.")
    assert "color" not in shapes.Grandchild.__init__.__doc__


def test_methods_take_the_text_of_the_method_that_they_override(shapes):
    first, arguments, returns, raises = shapes.Child.draw.__doc__.split("\n\n")
    assert first == "Draw it twice."
    assert arguments.startswith("Args:\n    where: On which canvas.\n    how: Either")
    assert returns == "Returns:\n    The number of strokes."
    assert raises == "Raises:\n    ValueError: If there is no canvas."
    assert shapes.Grandchild.draw.__doc__.startswith(
        "Draw it.\n\nWith a brush.\n\nArgs:\n    where:"
    )
    assert shapes.Child.name.__doc__ == "What it is called."


def test_properties_take_the_text_of_the_attribute(shapes):
    assert shapes.Base.area.__doc__ == "Its area,\nin square pixels."


def test_a_reference_for_further_reading_stays(shapes):
    assert shapes.further.__doc__ == "Return ``size``; see :func:`paint`."
    assert shapes.there.__doc__ == (
        "Do what :meth:`Base.draw` does; see there.\n\nArgs:\n    where: On which canvas."
    )
    assert shapes.nowhere.__doc__ == "Return ``size``; see there."


def test_a_second_time_changes_nothing(shapes):
    before = [shapes.Child.__doc__, shapes.Child.draw.__doc__, shapes.Base.__init__.__doc__]
    fill_in_docstrings("shapes")
    after = [shapes.Child.__doc__, shapes.Child.draw.__doc__, shapes.Base.__init__.__doc__]
    assert after == before


def test_dataclasses_explain_the_fields_of_their_base_classes(shapes):
    fields = "Attributes:\n    x: To the right.\n    y: Upwards."
    assert shapes.Marker.__doc__ == f"A point that is drawn.\n\n{fields}\n    color: Of its border."
    assert shapes.Copy.__doc__ == f"Another point.\n\n{fields}"
    assert shapes.Copy(1.0) == shapes.Copy(1.0, 0.0)


def test_classes_of_the_package_can_be_pickled():
    penalty = botorch_bandits.Exponential(2.0)
    assert pickle.loads(pickle.dumps(penalty)) == penalty


def test_the_package_can_be_imported_without_docstrings():
    """``python -OO`` strips them."""
    command = "import botorch_bandits as b; print(b.BanditLoop.__doc__, b.BanditLoop.ask.__doc__)"
    result = subprocess.run(
        [sys.executable, "-OO", "-c", command], capture_output=True, text=True, timeout=300
    )
    assert result.stdout.strip() == "None None", result.stderr[-500:]
