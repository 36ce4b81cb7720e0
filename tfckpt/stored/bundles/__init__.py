"""TensorFlow's own format: an index and its data files, read and written without TensorFlow."""
