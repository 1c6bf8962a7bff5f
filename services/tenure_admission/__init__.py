"""The admission of Tenure: see README.md beside this file."""
