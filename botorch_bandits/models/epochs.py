r"""A model for each epoch of multipliers, with its own kernel.

Assumptions 3 and 5 of Shi and Eryilmaz 2022 ask that the penalized function of epoch ``l``,

.. math:: F_l = f - \sum_j \kappa_j^l (\psi(g_j) - 1),

has a bounded norm in the space of a kernel :math:`k_l`, which may differ from epoch to epoch
because the multipliers do: as they grow, so does the scale of :math:`F_l`. Epochs that begin
without data may each have their own prior, provided it is chosen before their outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from botorch_bandits.checks import check_integer, store_checked
from botorch_bandits.models.bandit_gp import BanditGPRecipe

ModelOfEpoch = Callable[[int, tuple[float, ...]], BanditGPRecipe]
"""From the number of an epoch, from 1, and its multipliers to its model."""

_REMEDY = (
    "Pass recipes, EpochModels([BanditGP.with_kernel(...), ...]), or a function (epoch, "
    "multipliers) -> BanditGP.with_kernel(...)."
)


@dataclass(frozen=True)
class EpochModels:
    """The model of a loop whose epochs have their own kernels; see the module.

    Use it with ``constraints=MultiplicativeEpochs(..., surrogate="fresh")``, or with
    ``AdditiveEpochs`` in the same way.

    Attributes:
        models: The recipes of epochs 1, 2, ..., the last of which is also used for all further
            epochs; or a function that returns the recipe, given the number of the epoch, from 1,
            and its multipliers. The function must return equal recipes for equal arguments.

    Raises:
        TypeError: If ``models`` is neither.
        ValueError: If ``models`` is empty.

    Example:
        >>> from gpytorch.kernels import MaternKernel
        >>> from botorch_bandits import BanditGP
        >>> first, others = [
        ...     BanditGP.with_kernel(MaternKernel(), noise=1.0, lengthscale=l) for l in (0.5, 0.2)
        ... ]
        >>> models = EpochModels([first, others])
        >>> models.in_epoch(1, (1.0,)) == first, models.in_epoch(9, (3.0,)) == others
        (True, True)
    """

    models: Sequence[BanditGPRecipe] | ModelOfEpoch

    def __post_init__(self) -> None:
        """Check the recipes; what a function returns is checked when its epoch begins."""
        given = self.models
        if isinstance(given, BanditGPRecipe | str) or not (
            callable(given) or isinstance(given, Sequence)
        ):
            raise TypeError(f"models is {given!r}. {_REMEDY}")
        if callable(given):
            return
        if not given:
            raise ValueError(f"models is empty. {_REMEDY}")
        for index, recipe in enumerate(given):
            _check_recipe(f"models[{index}]", recipe)
        store_checked(self, models=tuple(given))

    @property
    def recipes(self) -> tuple[BanditGPRecipe, ...] | None:
        """The recipes, one per epoch; None if a function returns them."""
        return None if callable(self.models) else tuple(self.models)

    def in_epoch(self, epoch: int, multipliers: Sequence[float]) -> BanditGPRecipe:
        """Return the recipe of an epoch.

        Args:
            epoch: Its number, from 1.
            multipliers: The multipliers in that epoch.

        Raises:
            TypeError: If the function does not return a recipe.
        """
        epoch = check_integer("epoch", epoch, minimum=1)
        if not callable(self.models):
            return self.models[min(epoch, len(self.models)) - 1]
        recipe = self.models(epoch, tuple(multipliers))
        return _check_recipe(f"models({epoch}, {tuple(multipliers)})", recipe)


def _check_recipe(name: str, recipe: BanditGPRecipe) -> BanditGPRecipe:
    if not isinstance(recipe, BanditGPRecipe):
        raise TypeError(f"{name} is {recipe!r}, which is not a recipe. {_REMEDY}")
    return recipe
