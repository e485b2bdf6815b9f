"""Workers as Jobs of a Kubernetes cluster, a pod each."""
