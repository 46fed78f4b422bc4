"""Device times in half precision and below: physics of each family's kernels, corrected by what was measured.

A family (family.py) is one file: linear layers stand in linear.py. families.py lists them.
"""
