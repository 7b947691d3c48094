"""Causes in the metric and in the evaluation."""
