"""The version of Siafu: this is where it is written, and nowhere else."""

__version__ = "0.1.0"
