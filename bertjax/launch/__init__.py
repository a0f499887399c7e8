"""Starts runs: on this machine, over ssh, on TPU VMs and on GKE; the scripts of launch/ call it."""
