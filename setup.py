"""For tools that still ask for it; the metadata is in setup.cfg."""

import setuptools

setuptools.setup()
