"""Is this training run worth its compute, and is its model worth shipping?"""
