"""Names, selectors, inventories and text: pure values and functions.

Imports nothing of tfckpt but the errors.
"""
