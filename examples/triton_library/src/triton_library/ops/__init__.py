"""One module for each operator: its kernels, and functions of tensors that launch them."""
