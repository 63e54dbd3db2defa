"""The commands of the plugin, one module each; each is imported only when its command is called.

What several commands share (options, output, reading the cluster) lies one floor up and imports no command.
"""
