"""The files of a project: :mod:`~cuda_ext.builder.sources.plan` plans their compilation."""
