"""The agent of Tenure: see README.md beside this file."""
