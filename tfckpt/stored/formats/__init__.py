"""An open checkpoint of any format, and what is not of TensorFlow or Keras: safetensors, NumPy.

May import `stored/commits` and below.
"""
