"""The autoscaler of Tenure: see README.md beside this file."""
