"""What lives in memory: the only room that imports TensorFlow and Keras."""
