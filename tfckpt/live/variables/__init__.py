"""What a variable, an optimizer or a layer is, in TensorFlow and in both Keras flavours.

May import `live/io` and below.
"""
