"""What is stored: bundles, state files and commit records, read without TensorFlow.

Everything here reaches the disk through :mod:`tfckpt.stored.io.files`, and takes what it reads for
hostile until it is checked: an index that passes cannot abort the process when TensorFlow's own
reader opens it later.
"""
