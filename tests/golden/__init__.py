"""What this package checks is written down whole, as text: names and plans, before and after.

``python -m golden names``, ``corpus`` or ``plans``, in the folder ``tests``, writes the files anew;
``git diff`` then shows what a change of the code has changed for its users. Only what
``tfckpt.__all__`` has is called, so that the inside may be another one.
"""
