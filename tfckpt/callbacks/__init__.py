"""The callback for ``fit``, in both Keras flavours, and the state of training that it keeps."""
