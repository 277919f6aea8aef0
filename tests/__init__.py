"""Tests; see the house's "Tests" for the layout."""
