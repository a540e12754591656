"""The experiments of the papers that this package implements, and some beyond them.

Run them in a clone with ``python tutorials/papers NAME``. They play the rules of
``botorch_bandits`` through its public names, and come with baselines that only they need.
"""
