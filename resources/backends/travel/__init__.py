"""Workers on machines that share no volume with their launcher: one job folder kept alike at two places by a bucket."""
