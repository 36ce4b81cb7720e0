"""The table of everyday restores: what people do, and what comes of it.

``python -m zoo.everyday`` in ``tests`` measures and prints it, with the shares;
``python -m zoo.everyday keras TF1`` the rows of one flavour with a word in their names; with
``tf1`` the table of TF1's files. ``conformance/test_everyday.py`` asserts both.
A cell says what came of a restore:

- ``first``: right at the first try, and what was left out was said;
- ``pasted``: refused, and the policy that the refusal shows, pasted, is right;
- ``refused``: refused, and nothing that could be pasted works;
- ``WRONG``: a value has another one's, or was left without a word, at once or after pasting.

Right is what the program means: each value is known by its part in the program, and compared with
NumPy. An optimizer comes back as a whole, or begins anew as a whole.
"""
