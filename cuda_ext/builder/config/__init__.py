"""The table ``[tool.cuda_ext]``: :mod:`~cuda_ext.builder.config.modules` reads it."""
