"""Starts runs: on this machine and over ssh; scripts and files of launch/ call it."""
