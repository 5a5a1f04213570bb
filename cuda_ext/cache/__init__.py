"""Bytes by key, on disk and behind a URL: :mod:`~cuda_ext.cache.open_store` opens the store."""
