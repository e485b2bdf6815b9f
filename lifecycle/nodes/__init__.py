"""Several machines train one model: what the agent of each is told, agrees on with the others, and sees of them."""
