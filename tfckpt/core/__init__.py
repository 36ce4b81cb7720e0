"""Names, selectors, inventories and text: pure values and functions.

Imports nothing else of tfckpt but the errors.
"""
