"""The fake NVML: a C file that tests compile and script, so that nvidia-ml-py itself is exercised without a GPU."""
