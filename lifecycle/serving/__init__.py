"""What two models take to be served, measured in turns."""
