"""TensorFlow's checkpoint format, an index and data files, read and written without TensorFlow."""
