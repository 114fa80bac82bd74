"""All of Cleancut under one name: `cleancut.impl` is `impl`, the very same module object.

For users in whose environment the short names collide with something of their own. Nothing is imported until it is
asked for: `import cleancut` alone loads none of the four packages.
"""

from cleancut import alias

alias.install()
