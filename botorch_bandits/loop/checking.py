"""The answer of :meth:`.BanditLoop.check_model`: which rows a check of the loop's model is about.

Rows that are no outcomes as they were told are refused, for what they say of the model is not
known.
"""

from __future__ import annotations

from botorch.models.model import Model, ModelList

from botorch_bandits.docstrings import fill_in_docstrings
from botorch_bandits.feedback import Censored
from botorch_bandits.history import History
from botorch_bandits.loop.settings import LoopSettings
from botorch_bandits.models import CandidatesModel, ModelCheck, check_model


def check_of_loop(settings: LoopSettings, model: Model, history: History) -> ModelCheck:
    """Return what the outcomes since the last reset say of the model of the reward.

    Args:
        settings: Of the loop.
        model: Its model now.
        history: What happened since the last reset.

    Raises:
        RuntimeError: If the rows are no outcomes, or the model is a list of priors.
    """
    if isinstance(settings.feedback, Censored):
        raise RuntimeError(
            "with censored feedback the model has pseudo-values where outcomes are missing, and "
            "what it expects of those says nothing. Pass outcomes and a model of them to "
            "botorch_bandits.models.check_model."
        )
    if isinstance(model, ModelList):  # of the reward, then of the constraints
        model = model.models[0]
    if isinstance(model, CandidatesModel):
        raise RuntimeError(
            "the loop's model is a list of priors; loop.evidence() says what the outcomes say of "
            "each of them."
        )
    if getattr(model, "repeats", None) is None:
        return check_model(model)
    if settings.constraints is not None and settings.constraints.surrogate_in_use != "separate":
        raise RuntimeError(
            "the model's rows are means of penalized rewards, whose order is lost. Use "
            "surrogate='separate', or a domain whose points are not repeated."
        )
    return check_model(model, *history.arrived())


fill_in_docstrings(__name__)
