"""One training by several processes: each has a replica of the model and a share of each batch's rows."""
