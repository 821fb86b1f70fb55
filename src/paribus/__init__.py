"""paribus: all else equal. Controlled, paired pretraining experiments."""

__version__ = "0.1.0"
