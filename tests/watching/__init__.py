"""Tests of the page and of the copy for Optuna."""
