"""Tests of replicates."""
