"""What a model's closed form was computed from, and whether that is still so."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from botorch.models import SingleTaskGP
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.nn import Module

from botorch_bandits.checks import DTYPE
from botorch_bandits.models.closed_form import ClosedForm
from botorch_bandits.models.fixed_mean import read_prior_mean
from botorch_bandits.models.hyperparameter_stamp import ModuleStamp, version
from botorch_bandits.models.stationary_kernel import StationaryKernel


@dataclass(frozen=True, eq=False)
class KnownPosterior:
    """A model's closed form and the state of the model that it belongs to.

    Attributes:
        closed_form: None if the model has none.
        inputs: The model's inputs, as the kernel sees them.
        targets: The model's outcomes.
        versions: How often ``inputs`` and ``targets`` had been changed in place.
        modules: Kernel, likelihood and mean.
        stamps: One for each module.
    """

    closed_form: ClosedForm | None
    inputs: Tensor
    targets: Tensor
    versions: tuple[int, int]
    modules: tuple[Module, ...]
    stamps: tuple[ModuleStamp, ...]

    @classmethod
    def of(cls, model: SingleTaskGP, closed_form: ClosedForm | None) -> KnownPosterior:
        """Tie a closed form to the present state of a model.

        Args:
            model: It is not changed.
            closed_form: Its closed form.
        """
        inputs, targets = model.train_inputs[0], model.train_targets
        modules = parts_of(model)
        stamps = tuple(ModuleStamp(module) for module in modules)
        versions = (version(inputs), version(targets))
        return cls(closed_form, inputs, targets, versions, modules, stamps)

    def is_current(self, model: SingleTaskGP) -> bool:
        """Return whether neither data nor hyperparameters of the model have changed since."""
        inputs, targets = model.train_inputs[0], model.train_targets
        return (
            inputs is self.inputs
            and targets is self.targets
            and (version(inputs), version(targets)) == self.versions
            and parts_of(model) == self.modules
            and all(stamp.is_current() for stamp in self.stamps)
        )


def parts_of(model: SingleTaskGP) -> tuple[Module, ...]:
    """Return the modules that hold hyperparameters: kernel, likelihood and mean."""
    modules = model._modules  # quicker than the attributes
    return modules["covar_module"], modules["likelihood"], modules["mean_module"]


def has_closed_posterior(model: SingleTaskGP) -> bool:
    """Return whether data and hyperparameters of a model are such that it has a closed form.

    It takes evaluation mode, at least one row, one output, no batches, float64, a kernel that
    ``StationaryKernel`` knows, a fixed mean, one noise variance, and input transforms that map each
    row to one row in training and evaluation alike.
    """
    inputs, targets = model.train_inputs[0], model.train_targets
    kernel, likelihood, mean = parts_of(model)
    transform = model._modules.get("input_transform")
    if (
        model.training
        or type(model).forward is not SingleTaskGP.forward
        or model.num_outputs != 1
        or len(model.train_inputs) != 1
        or inputs.dim() != 2
        or targets.dim() != 1
        or targets.shape[0] == 0
        or inputs.dtype != DTYPE
        or (inputs.requires_grad or targets.requires_grad)
        or type(likelihood) is not GaussianLikelihood
        or read_prior_mean(mean) is None
        or "outcome_transform" in model._modules
    ):
        return False
    if transform is not None and not (
        transform.transform_on_train
        and transform.transform_on_eval
        and not transform.is_one_to_many
    ):
        return False
    form = StationaryKernel.read(kernel)
    return form is not None and len(form.lengthscale) in (1, inputs.shape[-1])


def closed_form_of(model: SingleTaskGP) -> ClosedForm | None:
    """Factorise the kernel matrix of a model that :func:`has_closed_posterior`.

    Returns:
        None if it cannot be factorised in float64.
    """
    form = StationaryKernel.read(model.covar_module)
    assert form is not None
    noise = model.likelihood.noise.detach().item()
    prior_mean = read_prior_mean(model.mean_module)
    assert prior_mean is not None
    # what is computed in inference mode must be usable outside of it
    with torch.inference_mode(False), torch.no_grad():
        return ClosedForm.of_data(
            form, noise, model.train_inputs[0], model.train_targets, prior_mean
        )
