"""Processes of the command line in which queries are evaluated.

Each worker has one thread, and receives the function when it starts. The workers end when the run
ends or is interrupted. Their code is in this file and in the one on processes, both of which import
as little as possible.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botorch_bandits.processes import (
    end_with_parent,
    interrupts_on_hold,
    one_thread_each,
    terminate,
)


class UserCodeError(ValueError):
    """A user's module raised an error while it was imported.

    Args:
        message: What happened, in one line.
        shown: The traceback, as returned by :func:`traceback_of_user`.
    """

    def __init__(self, message: str, shown: str = "") -> None:
        """See the class."""
        super().__init__(message, shown)  # both, so that a process can send it to another one
        self.shown = shown

    def __str__(self) -> str:
        """Return the message."""
        return str(self.args[0])


def traceback_of_user(error: BaseException) -> str:
    """Return the traceback of an error from where the user's own code begins.

    It leaves out the frames of this package and of the import system above that point, and is empty
    if the error did not occur in the user's code.

    Args:
        error: The error of the user's function, or of importing its module, here or in a worker.
    """
    if type(error.__cause__).__name__ == "_RemoteTraceback":
        lines = str(error.__cause__).strip('\n"').splitlines()
        starts = [i for i, line in enumerate(lines) if line.startswith('  File "')]
        last = max((i for i in starts if f'"{__file__}"' in lines[i]), default=-1)
        first = min((i for i in starts if i > last), default=-1)
        if min(last, first) < 0:
            return ""
        shown = [lines[0], *lines[first:], *getattr(error, "__notes__", ())]
        return "\n".join(shown[1:] if lines[0].startswith("  File") else shown)
    found = traceback.TracebackException.from_exception(error)
    frames = list(found.stack)
    last = max((i for i, each in enumerate(frames) if each.filename == __file__), default=-1)
    own = [each for each in frames[last + 1 :] if not _is_importing(each.filename)]
    if last < 0 or not (own or isinstance(error, SyntaxError)):
        return ""
    found.stack = traceback.StackSummary.from_list(own)
    return "".join(found.format()).rstrip()


def _is_importing(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or filename == importlib.__file__


@dataclass(frozen=True)
class NamedFunction:
    """A user's function by its name, so that a worker process can import it for itself.

    Attributes:
        name: ``MODULE:FUNCTION``.
        folder: Modules in this folder can also be named, as with ``python -m``.
    """

    name: str
    folder: str

    @classmethod
    def in_current_folder(cls, name: str) -> NamedFunction:
        """Return the function of this name.

        Raises:
            ValueError: If it cannot be imported, or does not take exactly one argument.
        """
        function = cls(name, str(Path.cwd()))
        loaded = function.load()
        try:
            signature = inspect.signature(loaded)
        except (TypeError, ValueError):  # raised for functions that are not written in Python
            return function
        try:
            signature.bind(None)
        except TypeError:
            raise ValueError(
                f"function {name!r} has the signature {signature}, but it is called with one "
                "argument: with --param a dict of values by name, with --bounds a tensor of "
                "coordinates. Write def f(p): and read p['name'], or p[0], in it."
            ) from None
        return function

    def load(self) -> Callable[[Any], Any]:
        """Import the function.

        Raises:
            ValueError: If the name is malformed, or does not name anything that can be imported and
                called.
            UserCodeError: If the module's own code raises, as with a syntax error.
        """
        module_name, colon, function_name = self.name.partition(":")
        if not (module_name and colon and function_name):
            raise ValueError(
                f"function is {self.name!r}; it must be MODULE:FUNCTION, as in mymodule:reward."
            )
        if self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            remedy = ""
            if module_name.endswith(".py"):
                remedy = f" Leave out .py: {module_name.removesuffix('.py')}:{function_name}."
            raise ValueError(
                f"module {module_name!r} cannot be imported: {error}.{remedy}"
            ) from error
        except Exception as error:
            raise UserCodeError(
                f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}.",
                traceback_of_user(error),
            ) from error
        function: Any = getattr(module, function_name, None)
        if not callable(function):
            raise ValueError(f"module {module_name!r} has no function {function_name!r}.")
        checked: Callable[[Any], Any] = function
        return checked

    def __call__(self, argument: Any) -> Any:
        """Return what the function returns for the argument that ``run`` would give it."""
        return self.load()(argument)


@dataclass(frozen=True)
class AtAnyRound:
    """A function that is the same in every round.

    Attributes:
        function: A function of a point alone.
    """

    function: Callable[[Any], Any]

    def __call__(self, argument: Any, round_number: int) -> Any:
        """Return what the function returns for its argument."""
        return self.function(argument)


class WorkerPool(ProcessPoolExecutor):
    """Processes that evaluate one function; see :func:`evaluate_known`.

    Args:
        function: A function of an argument and a round, which can be pickled.
        num_workers: The number of processes.
        before_submit: Called before each evaluation is submitted.
    """

    def __init__(
        self,
        function: Callable[[Any, int], Any],
        num_workers: int,
        before_submit: Callable[[], None],
    ) -> None:
        """See the class."""
        super().__init__(
            num_workers,
            multiprocessing.get_context("spawn"),
            initializer=_prepare,
            initargs=(function,),
        )
        self._before_submit = before_submit
        self._futures: list[Future[Any]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See :class:`concurrent.futures.Executor`."""
        self._before_submit()
        # a process starts here, with interrupts on hold so that they cannot hit its imports
        with one_thread_each(), interrupts_on_hold():
            future = super().submit(function, *args, **kwargs)
        self._futures = [each for each in self._futures if not each.done()] + [future]
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, even in the middle of an evaluation."""
        if not all(future.done() for future in self._futures):
            terminate(self)
        super().shutdown(wait, cancel_futures=True)


# the rest runs in the workers

_known: list[Callable[[Any, int], Any]] = []


def _prepare(function: Callable[[Any, int], Any]) -> None:
    end_with_parent()  # first, because the imports take seconds
    import torch  # noqa: F401, needed for arguments: a worker takes none before it is ready

    _known.append(function)


def evaluate_known(argument: Any, round_number: int) -> Any:
    """Return what the function of a :class:`WorkerPool` returns, in one of its processes.

    Args:
        argument: The argument of the function.
        round_number: The round in which the query was asked.
    """
    return _known[-1](argument, round_number)
