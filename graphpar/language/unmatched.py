"""Why a selector takes in nothing, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from graphpar.errors import Diagnostic, any_of, listing, suggestions
from graphpar.language.selectors import Aliases, Lists, Pick, Selector, Step, matches, selects


@dataclass(frozen=True)
class ModelNames:
    """What selectors can refer to in one model.

    `paths`: module paths, and `input:NAME` and `output:NAME`; `parameters`: parameter paths, every alias included;
    `ops`: (kind, module path) of every op; `lines`: (file, line) of every op; `lists`: module lists with their lengths;
    `aliases`: `layers`.
    """

    paths: Sequence[str]
    parameters: Sequence[str] = ()
    ops: Sequence[tuple[str, str]] = ()
    lines: Sequence[tuple[str, int]] = ()
    lists: Lists = field(default_factory=dict)
    aliases: Aliases = field(default_factory=dict)

    def takes(self, selector: Selector) -> bool:
        """Whether the selector takes in anything of this model, with every index in range."""
        if selector.kind == "op":
            return any(matches(selector, p, op=op, lists=self.lists, aliases=self.aliases) for op, p in self.ops)
        if selector.kind == "line":
            return any(matches(selector, "", line=line) for line in self.lines)
        return any(matches(selector, path, lists=self.lists, aliases=self.aliases) for path in self.paths)


def explain_no_match(selector: Selector, names: ModelNames) -> Diagnostic:
    """The diagnostic of a selector that takes in nothing of the model."""
    if selector.kind == "line":
        return _no_line(selector, names)
    if selector.kind in ("input", "output"):
        prefix = f"{selector.kind}:"
        known = [path.removeprefix(prefix) for path in names.paths if path.startswith(prefix)]
        return _no_word(selector, selector.name, known, f"{selector.kind}s of the model")
    kinds = list(dict.fromkeys(op for op, _ in names.ops))
    if selector.kind == "op" and not any(matches(Selector("op", "", name=selector.name), "", op=op) for op in kinds):
        return _no_word(selector, selector.name, sorted(kinds), "kinds of op in the model")
    return explain_path(selector, names.paths, names)


def explain_path(selector: Selector, paths: Iterable[str], names: ModelNames) -> Diagnostic:
    """The diagnostic of a path that ends nowhere: at which of its steps the model has nothing to offer."""
    modules = _with_ancestors(path for path in paths if ":" not in path)
    reached: list[str] = []
    for count, step in enumerate(selector.steps):
        further = [m for m in modules if _selects_prefix(selector, count + 1, m, names)]
        if not further or (isinstance(step, Pick) and not _in_range(step, reached, names.lists)):
            return _stuck(selector, step, reached, modules, names)
        reached = further
    why = (f"the model has `{reached[0]}`, but no such op at or below it",) if reached else ()
    return _nothing(selector, why=why)


def out_of_range(selector: Selector, names: ModelNames) -> Diagnostic | None:
    """The diagnostic of a range that goes past the end of every list it could mean, such as [0:40] of 12 layers."""
    modules = _with_ancestors(path for path in names.paths if ":" not in path)
    for count, step in enumerate(selector.steps):
        if isinstance(step, Pick):
            reached = [m for m in modules if _selects_prefix(selector, count, m, names)]
            if reached and not _in_range(step, reached, names.lists):
                return _stuck(selector, step, reached, modules, names)
    return None


def _in_range(step: Pick, reached: Sequence[str], lists: Lists) -> bool:
    return any(step.fits(lists[path]) for path in reached if path in lists)


def _selects_prefix(selector: Selector, count: int, path: str, names: ModelNames) -> bool:
    prefix = Selector("module", "", selector.steps[:count], selector.anchored)
    return selects(prefix, path, lists=names.lists, aliases=names.aliases)


def _stuck(
    selector: Selector, step: Step, reached: Sequence[str], modules: Sequence[str], names: ModelNames
) -> Diagnostic:
    if isinstance(step, Pick):
        return _no_child(selector, step, reached, names.lists)
    if not reached:
        words = dict.fromkeys(part for module in modules for part in module.split(".") if not part.isdecimal())
        return _no_word(
            selector, step, [*words, *(a for a in names.aliases if a not in words)], "parts of module paths"
        )
    return _no_name(selector, step, reached, modules)


def _no_child(selector: Selector, step: Pick, reached: Sequence[str], lists: Lists) -> Diagnostic:
    found = next((path for path in reached if path in lists), None)
    if found is None:
        return _nothing(selector, why=(f"`{reached[0]}` is no list of modules, so {step} means nothing there",))
    length = lists[found]
    if step.ranged:
        choices = [
            selector.text.replace(str(step), str(Pick(min(max(step.start or 0, 0), length - 1), length, ranged=True)))
        ]
    else:
        choices = [selector.text.replace(str(step), f"[{index}]") for index in (length - 1, -1)]
    why = f"`{found}` has {length} children, 0 to {length - 1}; {step} goes beyond them"
    return _nothing(selector, why=(why,), fix=" or ".join(choices))


def _no_name(selector: Selector, step: str, reached: Sequence[str], modules: Sequence[str]) -> Diagnostic:
    prefix = f"{reached[0]}."
    children = list(dict.fromkeys(m.removeprefix(prefix).split(".")[0] for m in modules if m.startswith(prefix)))
    if children and all(child.isdecimal() for child in children):
        parent = reached[0].split(".")[-1]
        why = f"`{reached[0]}` is a list of {len(children)}, and `{step}` can only be below one of its children"
        return _nothing(
            selector,
            why=(why,),
            fix=selector.text.replace(f".{step}", f".*.{step}").replace(f"{parent}.*", f"{parent}[:]"),
        )
    near = suggestions(step, children)
    fix = selector.text.replace(step, near[0]) if near else None
    return _nothing(selector, why=(f"`{reached[0]}` has no `{step}`; {listing(children, 'below it')}",), fix=fix)


def _no_word(selector: Selector, word: str, known: Sequence[str], what: str) -> Diagnostic:
    near = suggestions(word, known)
    hint = f", but {any_of(near)}" if near else ""
    why = (f"the model has no `{word}`{hint}", *([] if near else [listing(known, what)]))
    return _nothing(selector, why=why, fix=selector.text.replace(word, near[0]) if near else None)


def _no_line(selector: Selector, names: ModelNames) -> Diagnostic:
    lines = sorted({line[1] for line in names.lines if matches(_line_like(selector, line[1]), "", line=line)})
    if not lines:
        files = dict.fromkeys(file for file, _ in names.lines)
        return _nothing(
            selector, why=(f"no op comes from a file `{selector.name}`", listing(list(files), "files with ops"))
        )
    nearest = sorted(lines, key=lambda number: abs(number - selector.line))[:2]
    near = " and ".join(map(str, nearest))
    why = f"line {selector.line} of {selector.name} computes nothing in the captured graph; the nearest: {near}"
    return _nothing(selector, why=(why,), fix=f"line:{selector.name}:{nearest[0]}")


def _line_like(selector: Selector, number: int) -> Selector:
    return Selector("line", "", name=selector.name, line=number)


def _with_ancestors(paths: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for path in paths:
        parts = path.split(".")
        found.update(dict.fromkeys(".".join(parts[:count]) for count in range(1, len(parts) + 1)))
    return list(found)


def _nothing(selector: Selector, *, why: tuple[str, ...] = (), fix: str | None = None) -> Diagnostic:
    message = f"selector `{selector}` matches nothing in the model"
    return Diagnostic("selector-matches-nothing", selector.span, message, why=why, fix=fix)
