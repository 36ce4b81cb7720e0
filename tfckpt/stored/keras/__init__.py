"""Keras's own files: HDF5 files and `.keras` archives of them."""
