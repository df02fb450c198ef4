"""Batchline: the roofline of batch size.

Give it a model and an accelerator; it says which batch size to run, what a token then costs, how long it takes,
what bounds it, and which deployment is cheapest.
"""

__version__ = "0.1.0"
