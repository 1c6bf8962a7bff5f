"""The slottable of Tenure: see README.md beside this file."""
