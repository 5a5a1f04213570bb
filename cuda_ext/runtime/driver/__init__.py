"""The CUDA driver: devices and loaded kernels. This folder knows neither modules nor libraries."""
