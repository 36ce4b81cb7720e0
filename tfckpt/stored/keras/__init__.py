"""Keras's own files: HDF5 and archives of it."""
