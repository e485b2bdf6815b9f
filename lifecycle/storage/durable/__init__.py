"""Storage that outlives the machine of a training: copies of its checkpoints, and who may write them."""
