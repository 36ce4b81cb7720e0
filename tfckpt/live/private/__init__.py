"""What TensorFlow and Keras do not document and tfckpt uses: a module for each package.

No other room names such a part. Each says what it is for, and what happens without it: a public
way, slower or less exact and then said, or an error that names the part and the versions.
"""
