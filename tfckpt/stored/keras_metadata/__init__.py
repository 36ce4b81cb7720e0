"""What Keras writes about its own objects: configurations, lists, the order of a layer's variables.

May import `stored/bundles` and below.
"""
