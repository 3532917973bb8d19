"""Plugins: targets, metrics and providers of installed packages."""
