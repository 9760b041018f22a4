"""The source of a function that is to be saved, and what it would miss elsewhere."""

import builtins
import dis
import inspect
import textwrap
import types


def source_of(function):
    """Name, source and first paragraph of the documentation of `function`."""
    inner = inspect.unwrap(function) if callable(function) else function
    if not isinstance(inner, types.FunctionType):
        raise TypeError(
            "save_tool() wants a function made by `def` or `async def`, not %s"
            % type(function).__name__
        )
    name = inner.__name__
    if not name.isidentifier():
        raise TypeError("save_tool() wants a function with a name, not a lambda")
    try:
        source = textwrap.dedent(inspect.getsource(inner))
    except (OSError, TypeError):
        raise ValueError(
            "the source of `%s` is no longer kept; define it again and save it in the same run"
            % name
        ) from None
    description = (inspect.getdoc(inner) or "").split("\n\n")[0]
    return name, source, description


def missing_names(source, name, given):
    """Names that `source` uses and that are neither in it, nor in Python, nor in `given`: a
    session that knows nothing else would raise NameError for them."""
    try:
        code = compile(source, "<saved tool %s>" % name, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise ValueError(
            "`%s` cannot be saved: its source alone is not valid Python (%s)" % (name, error.msg)
        ) from None
    used, stored = set(), set()
    _names(code, used, stored)
    known = stored | given | set(vars(builtins)) | {"__name__", "__builtins__", "__doc__"}
    return sorted(used - known)


def _names(code, used, stored):
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            used.add(step.argval)
        elif step.opname in ("STORE_GLOBAL", "STORE_NAME"):
            stored.add(step.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _names(constant, used, stored)
