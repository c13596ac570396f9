"""Triton's interpreter, without the work that it repeats.

Each call of a @triton.jit function from another one looks through all of triton.language for builtins to replace,
though they have been replaced already: half of an interpreted kernel's time.
"""

from __future__ import annotations

import inspect

_names: dict[object, list[str]] = {}


def quicken() -> None:
    """Look for builtins once. A Triton with another interpreter stays as it is."""
    from triton.runtime import interpreter

    known = ("_patch_builtin", "_patch_attr", "tl")
    if not all(hasattr(interpreter, name) for name in known) or interpreter._patch_builtin.__module__ == __name__:
        return
    if list(inspect.signature(interpreter._patch_builtin).parameters)[0] != "pkg":
        return

    def patch_builtin(pkg, *rest):
        if pkg not in _names:
            members = inspect.getmembers(pkg)
            _names[pkg] = [name for name, member in members if interpreter.tl.core.is_builtin(member)]
        for name in _names[pkg]:
            member = getattr(pkg, name)
            if not interpreter.tl.core.is_builtin(member):
                return  # all of them have been replaced
            interpreter._patch_attr(pkg, name, member, *rest)

    interpreter._patch_builtin = patch_builtin
