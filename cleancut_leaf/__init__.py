"""The leaf that every package may import: how we speak to people. It imports none of them.

words       counts, sizes and ages as a person reads them
extras      which extra brings a package that is not installed
terminal    what a command needs: parser, texts made safe, progress, files written whole (loads rich)
"""
