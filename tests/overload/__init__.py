"""Overload: many times what admission can do, for minutes, and what becomes of what it accepts."""
