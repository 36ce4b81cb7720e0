"""What happens during a training: the Keras callback, restores by config, saves that are due.

May import everything below `run`, and Keras.
"""
