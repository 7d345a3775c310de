"""The reference of the Python package as pages of MyST Markdown, from signatures and docstrings."""

import ast
import inspect
import pathlib
import re
import textwrap
import types

# Modules that need another library to be imported: read, not imported.
READ = ("torch", "sklearn")
SPECIAL = re.compile(r"([\\*_<>\[\]{}$|#~^])")


def escaped(text):
    """Plain text as Markdown; what stands in backticks stays."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else SPECIAL.sub(r"\\\1", part) for part in parts)


def blocks(text):
    """The blank-line separated parts of a docstring; those that are indented throughout are code."""
    for block in re.split(r"\n\s*\n", text):
        lines = block.split("\n")
        yield all(line.startswith("    ") for line in lines if line.strip()), lines


def markdown(docstring, names):
    """A docstring as Markdown. Lines "name: text", of parameters, become a list."""
    out, code = [], []

    def end_code():
        if code:
            out.append("```python\n" + textwrap.dedent("\n".join(code)).strip("\n") + "\n```")
            code.clear()

    for is_code, lines in blocks(inspect.cleandoc(docstring)):
        if is_code:
            code += [*([""] if code else []), *lines]
            continue
        end_code()
        paragraph, started = [], False
        for i, line in enumerate(lines):
            match = re.match(r"([\w*]+(?:, [\w*]+)*): (.*)", line)
            if match and all(n.strip("*") in names for n in match[1].split(", ")):
                if not started and paragraph:
                    paragraph.append("")
                started = True
                paragraph.append("- " + ", ".join(f"`{n}`" for n in match[1].split(", ")) + ": " + escaped(match[2]))
            elif started and (line.startswith(" ") or not lines[i - 1].endswith((".", ":"))):
                paragraph.append("  " + escaped(line.strip()))
            elif started:
                paragraph += ["", escaped(line.strip())]
                started = False
            else:
                paragraph.append(escaped(line.strip()))
        out.append("\n".join(paragraph))
    end_code()
    return "\n\n".join(out)


def entry(kind, name, signature, docstring, names, inner=()):
    """One object: its signature, its text, and what is inside it. The deeper, the fewer colons."""
    colons = ":" * (6 if kind == "class" else 5)
    # Of what is inside a class, the page's table of contents says nothing.
    options = [":no-contents-entry:"] if kind in ("attribute", "method") else []
    body = [f"{colons}{{py:{kind}}} {name}{signature}", *options, "", markdown(docstring or "", names)]
    return "\n".join([*body, *(f"\n{text}" for text in inner), colons, ""])


def signature_of(value):
    try:
        return inspect.signature(value)
    except (TypeError, ValueError):
        return None


def plain(signature):
    """Without what only Python's repr of a default says."""
    return re.sub(r"<[^>]*>|\bEllipsis\b", "...", signature)


def describe(name, value, owner="hotloop"):
    """The entry of a function or class that is there."""
    signature = signature_of(value)
    names = set(signature.parameters) if signature else set()
    shown = plain(str(signature)) if signature else "(...)"
    full = f"{owner}.{name}"
    if not inspect.isclass(value):
        return entry("function", full, shown, inspect.getdoc(value), names)
    methods = []
    for key, member in vars(value).items():
        if isinstance(member, property) and not key.startswith("_") and not (member.__doc__ or "(").startswith("("):
            methods.append(entry("attribute", key, "", member.__doc__, set()))
        elif isinstance(member, staticmethod):
            member = member.__func__
        if not inspect.isfunction(member) or not member.__doc__ or (key.startswith("_") and key != "__call__"):
            continue
        own = signature_of(member)
        text = "(" + ", ".join(str(p) for n, p in own.parameters.items() if n != "self") + ")"
        methods.append(entry("method", key, plain(text), inspect.getdoc(member), set(own.parameters)))
    fields = getattr(value, "_fields", None) or [f for f in getattr(value, "__dataclass_fields__", {})]
    return entry("class", full, shown.removesuffix(" -> None") if signature else "", value.__doc__, names | set(fields), methods)


def read_module(path, owner):
    """Entries of a module that is not imported."""
    tree = ast.parse(path.read_text())
    found = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_") and ast.get_docstring(node):
            arguments = f"({ast.unparse(node.args)})" if isinstance(node, ast.FunctionDef) else ""
            names = {a.arg for a in [*node.args.args, *node.args.kwonlyargs]} if isinstance(node, ast.FunctionDef) else set()
            kind = "function" if isinstance(node, ast.FunctionDef) else "class"
            found.append(entry(kind, f"{owner}.{node.name}", arguments, ast.get_docstring(node), names))
    return ast.get_docstring(tree) or "", found


def public(module):
    """(name, value) of a module's own public functions and classes, in order."""
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    for name in names:
        value = getattr(module, name)
        documented = (callable(value) or inspect.isclass(value)) and getattr(value, "__doc__", None)
        if documented and not isinstance(value, types.ModuleType) and str(getattr(value, "__module__", "hotloop")).startswith("hotloop"):
            yield name, value


def reference_pages():
    """(name, text) of each page: the package itself in parts, then each of its modules."""
    import hotloop as hl
    from hotloop import _creation, _dtypes, _elementwise, _linear, _logarithms, _manipulation, _reductions

    arrays = {name for m in (_creation, _dtypes, _elementwise, _linear, _logarithms, _manipulation, _reductions) for name in m.__all__}
    own = [(n, v) for n, v in public(hl) if not isinstance(v, types.ModuleType)]
    programs = [describe(n, v) for n, v in own if n not in arrays]
    yield "programs", "# hotloop: programs and models\n\n`import hotloop as hl`\n\n" + "\n".join(programs)
    functions = [describe(n, v) for n, v in own if n in arrays]
    yield "arrays", "# hotloop: functions of arrays\n\nUnder the names of the Python array API standard.\n\n" + "\n".join(functions)
    for name, module in sorted(vars(hl).items()):
        if isinstance(module, types.ModuleType) and module.__name__ == f"hotloop.{name}" and not name.startswith("_") and name not in READ:
            entries = [describe(n, v, f"hotloop.{name}") for n, v in public(module)]
            yield name, f"# hotloop.{name}\n\n{markdown(module.__doc__ or '', set())}\n\n" + "\n".join(entries)
    for name in READ:
        text, entries = read_module(pathlib.Path(hl.__file__).parent / f"{name}.py", f"hotloop.{name}")
        yield name, f"# hotloop.{name}\n\n{markdown(text, set())}\n\n" + "\n".join(entries)
