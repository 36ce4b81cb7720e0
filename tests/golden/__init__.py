"""What this package checks is written down whole, as text: names, plans and what commands print.

``python -m golden names``, ``corpus``, ``commands`` or ``plans``, in the folder ``tests``, writes
the files; ``git diff`` then shows what a change of the code has changed for its users. Only what
``tfckpt.__all__`` has is called, so that the inside may be another one.
"""
