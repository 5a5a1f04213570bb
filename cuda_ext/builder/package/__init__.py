"""The importable package of a module: :mod:`~cuda_ext.builder.package.generate` makes it."""
