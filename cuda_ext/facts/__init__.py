"""Facts about compiled code: kernels, parameters, images and modules, with one reader and one writer."""
