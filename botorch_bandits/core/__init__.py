"""The numerical core: exact posteriors in torch and GPyTorch kernels, and nothing else."""
