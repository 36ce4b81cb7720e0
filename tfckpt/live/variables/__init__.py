"""Variables, optimizers and layers of TensorFlow and of both Keras flavors.

May import `live/io` and below.
"""
