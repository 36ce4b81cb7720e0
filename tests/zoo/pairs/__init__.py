"""Random pairs of models: a description, an edit of it, and what belongs to what after the edit."""
