"""What this package checks is written down whole, as text: names, and what commands print.

``python -m golden names``, ``corpus`` or ``commands``, in the folder ``tests``, writes the files;
``git diff`` then shows what a change of the code has changed for its users. Only what
``tfckpt.__all__`` has is called, so that the inside may be another one.
"""
