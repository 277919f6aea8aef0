"""Tests of undo on Delta tables."""
