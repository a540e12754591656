"""The numerical core: posteriors as functions of rows, priors and noise.

This package knows PyTorch and GPyTorch's kernels, and nothing of bandits. Its notation:

* ``G`` priors (a list of candidates, kernels of their own for some outputs, or replicates),
  ``m`` outputs, ``A`` points, ``n`` rows.
* ``lam`` is the noise variance of one observation; row ``i`` has the noise ``lam * noise_i``.
* ``L S L' = K + lam N`` factorizes the covariance of the rows, with ``S`` diagonal and 1 or -1.
"""
