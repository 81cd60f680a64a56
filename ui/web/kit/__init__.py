"""What every page uses and no page owns: the store and the address bar (`state`), caches, figures, tables, text
blocks, settings as widgets, buttons and other small pieces."""
