"""The CUDA driver: devices, images and loaded kernels. This folder knows neither modules nor libraries."""
