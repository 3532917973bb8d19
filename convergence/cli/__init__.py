"""The commands. Modules here import what they need when a command runs, so that help is quick."""
