"""Parts of the benchmarks: our step, kernels and input, the rivals' steps and input, and timing."""
