"""Front-ends that compile Python functions to images, without a driver."""
