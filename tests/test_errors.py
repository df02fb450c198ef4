"""Errors read like a colleague: what was given, what is allowed, what to do next."""

import inspect

from batchline import errors


def test_the_tree_in_the_docstring_is_the_tree():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.BatchlineError)]
    assert classes
    for cls in classes:
        assert cls.__name__ in errors.__doc__
        assert cls.__name__ in errors.__all__


def test_closest_finds_what_was_meant():
    names = ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "gpt2"]
    assert errors.closest("llama3.1-70b", names)[0] == "llama-3.1-70b"
    assert errors.closest("QWEN", names) == ["qwen3-32b"]
    assert errors.closest("zzz", names) == []


def test_few_names_are_all_shown():
    message = str(errors.UnknownNameError("reading", "guess", ["bound", "serial"]))
    assert "bound, serial" in message
