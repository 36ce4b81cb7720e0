"""Models and optimizers of every kind, in both Keras flavours, for the tests of names.

Each builder takes the module ``keras`` or ``tf_keras``, so one of them makes the same thing twice,
and what must be equal across flavours can be compared.
"""
