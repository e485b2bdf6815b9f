"""Is this training run worth its compute, and is its model worth shipping?

A checkout has its packages at the top; here lies a link to each, so that all are imported by this one name.
"""

from trainworthy import earlier_name

earlier_name.install()
