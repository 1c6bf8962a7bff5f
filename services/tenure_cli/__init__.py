"""The cli of Tenure: see README.md beside this file."""
