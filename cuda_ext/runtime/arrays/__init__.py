"""Arrays as arguments: device memory of other libraries, dtypes, and numpy arrays, which are copied."""
