"""What TF1's ``Saver`` wrote, named by its keys."""
