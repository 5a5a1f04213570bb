"""Jobs to processes: :mod:`~cuda_ext.builder.scheduler.batch` runs all compilations of a build."""
