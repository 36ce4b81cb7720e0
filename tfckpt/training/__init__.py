"""Saving and restoring during training: the Keras callback, restores by config, due saves.

May import everything below `run`, and Keras.
"""
