"""Prompts: templates over a row, rendered the same way wherever an item is looked at."""

from __future__ import annotations

from fairlane.prompts.template import (
    Prompt,
    Template,
    check_templates,
    compile_template,
    referenced_variables,
    words_of,
)

__all__ = ["Prompt", "Template", "check_templates", "compile_template", "referenced_variables", "words_of"]
