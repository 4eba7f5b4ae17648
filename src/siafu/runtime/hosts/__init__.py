"""Hosts: each drives one machine of the pipeline."""
