"""Capture in one window, durable publication in the background, and the way back."""
