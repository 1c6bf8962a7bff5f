"""Providers: what makes, lists and removes machines. `port.py` is what one must be able to do."""
