r"""IRGP-UCB: a random width that does not grow with the round.

.. math:: w_t = \sqrt{2 \ln(|D| / 2) + Z_t}, \qquad Z_t \sim \mathrm{Exp}(\text{mean } 2)

Source: Takeno, Inatsu and Karasuyama, *Randomized Gaussian process upper confidence bound with
tighter Bayesian regret bounds*, ICML 2023.
"""

from __future__ import annotations

from typing import Any

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.model import Model
from torch import Tensor

from botorch_bandits.acquisition.arms_rules import ArmsRule, RandomizedArmsRule
from botorch_bandits.acquisition.recipe import check_domain_size, check_required
from botorch_bandits.acquisition.width_upper_confidence_bound import WidthUpperConfidenceBound
from botorch_bandits.confidence import RandomizedWidth
from botorch_bandits.domains import Arms, Domain


class RandomizedUpperConfidenceBound(WidthUpperConfidenceBound):
    r"""IRGP-UCB (Takeno, Inatsu and Karasuyama 2023), on finitely many arms.

    For rewards drawn from the model's prior. The theorem bounds the EXPECTED regret; the width is
    no confidence bound that holds in all rounds at once.

    Args:
        model: A fitted BoTorch model in float64.
        num_arms: ``|D|``, at least 2; in a loop on arms it may be omitted.
        seed: Seeds the draw of each round; taken from torch's global generator if omitted.
        round_number: See :class:`WidthUpperConfidenceBound`; each round has a draw of its own.
        posterior_transform: See :class:`WidthUpperConfidenceBound`.
        maximize: See :class:`WidthUpperConfidenceBound`.
        X_pending: See :class:`WidthUpperConfidenceBound`.

    Example:
        >>> from botorch.models import SingleTaskGP
        >>> X = torch.tensor([[0.1], [0.6], [0.9]], dtype=torch.float64)
        >>> acqf = RandomizedUpperConfidenceBound(SingleTaskGP(X, X.sin()), num_arms=100, seed=0)
        >>> bool(acqf.width ** 2 > 2 * torch.log(torch.tensor(50.0)))
        True
    """

    def __init__(
        self,
        model: Model,
        *,
        num_arms: int,
        seed: int | None = None,
        round_number: int | None = None,
        posterior_transform: PosteriorTransform | None = None,
        maximize: bool = True,
        X_pending: Tensor | None = None,
    ) -> None:
        """See the class."""
        super().__init__(
            model,
            RandomizedWidth(num_arms, int(torch.randint(2**62, ())) if seed is None else seed),
            round_number=round_number,
            posterior_transform=posterior_transform,
            maximize=maximize,
            X_pending=X_pending,
        )

    @classmethod
    def complete_options(cls, options: dict[str, Any], domain: Domain | None) -> dict[str, Any]:
        """Take the number of arms from the domain; see the base class."""
        if options.get("num_arms") is None:
            if isinstance(domain, Arms):
                options["num_arms"] = domain.num_arms
            elif domain is None:
                return options
        check_required(cls.__name__, options, ("num_arms",))
        check_domain_size(cls.__name__, options, domain)
        RandomizedWidth(options["num_arms"])
        return options

    @classmethod
    def arms_rule(cls, options: dict[str, Any]) -> ArmsRule | None:
        """See the base class."""
        if options.get("posterior_transform") is not None or options.get("seed") is not None:
            return None
        rule = RandomizedWidth(options["num_arms"])
        return RandomizedArmsRule(rule, maximize=options.get("maximize", True))
