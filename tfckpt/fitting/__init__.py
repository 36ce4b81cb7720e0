"""What a `fit` has of its own: the callback that restores and saves, and the state it keeps."""
