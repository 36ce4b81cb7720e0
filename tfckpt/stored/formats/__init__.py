"""An open checkpoint of any format; safetensors, and export to NumPy.

May import `stored/commits` and below.
"""
