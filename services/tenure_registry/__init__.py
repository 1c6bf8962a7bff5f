"""The registry of Tenure: see README.md beside this file."""
