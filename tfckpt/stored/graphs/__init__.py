"""Canonical names from TensorFlow's object graph, SavedModels included."""
