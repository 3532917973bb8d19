"""Plugins: targets, metrics and listeners of installed packages."""
