"""Device times in half precision and below: physics for each family of kernels, corrected by trees.

A family (family.py) is described in one file, such as linear.py for linear layers. families.py lists all families.
"""
