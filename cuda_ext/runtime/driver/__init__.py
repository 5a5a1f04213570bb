"""The CUDA driver: devices, images and loaded kernels. This folder does not know modules or libraries."""
