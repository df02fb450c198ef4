"""Colours and words of the page, from the charts' own theme and the one catalogue of texts."""

from __future__ import annotations

from batchline import strings
from batchline.chart import theme as looks

__all__ = ["palette", "theme_css", "words"]


def palette(theme: str) -> dict[str, str]:
    """Colour of each role in a theme, those of compared deployments included.

    Parameters
    ----------
    theme : str
        "light" or "dark".

    Returns
    -------
    dict
        Role -> "#rrggbb".

    Examples
    --------
    >>> palette("light")["deployment_a"] == palette("light")["compute"]
    True
    """
    colours: dict[str, str] = dict(looks.palette(theme))
    # Compared deployments carry letters; their colours are the theme's, which are tested for contrast and blindness.
    roles = zip("abcd", ("compute", "weights", "kv", "communication"), strict=True)
    return colours | {f"deployment_{letter}": colours[role] for letter, role in roles}


def theme_css() -> str:
    """Colours as CSS variables.

    Returns
    -------
    str
        A style sheet: the system's choice, unless the page says light or dark.
    """

    def block(selector: str, theme: str) -> str:
        lines = "".join(f"  --{role.replace('_', '-')}: {colour};\n" for role, colour in palette(theme).items())
        return f"{selector} {{\n{lines}  color-scheme: {theme};\n}}\n"

    system = "@media (prefers-color-scheme: dark) {\n" + block(":root:not([data-theme])", "dark") + "}\n"
    chosen = block(':root[data-theme="dark"]', "dark")
    said = "".join(f":root:lang({language}) {{ --font: {looks.font(language)} }}\n" for language in strings.LANGUAGES)
    return block(":root", "light") + system + chosen + said


def words(language: str) -> dict[str, str]:
    """Texts that the page's scripts use, by their names without the group.

    Parameters
    ----------
    language : str
        "en" or "ko".

    Returns
    -------
    dict
        Name -> text, with its fields still in braces.

    Examples
    --------
    >>> words("en")["ui_listed"]
    '{count} of {all}'
    """
    names = {name: said for name, said in strings.group("chart", language).items() if name.startswith("name_")}
    return names | strings.group("page", language)
