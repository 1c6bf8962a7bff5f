"""The scheduler of Tenure: see README.md beside this file."""
