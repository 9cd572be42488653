"""Sphinx's settings. `build.py` calls Sphinx with them; nothing on a page is asked of another server."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "Headwater"
html_title = "Headwater"
html_theme = "furo"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_favicon = str(Path(__file__).parents[1] / "src" / "headwater" / "web" / "static" / "icon.svg")
html_show_sphinx = False
html_show_copyright = False
html_copy_source = True  # llms.txt leads to the pages as they are written
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1f4fa8", "color-brand-content": "#1f4fa8"},
    "dark_css_variables": {"color-brand-primary": "#9dbcf5", "color-brand-content": "#9dbcf5"},
}

extensions = ["myst_parser", "sphinx_copybutton", "mathml"]
html_math_renderer = "mathml"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # a heading has the anchor that GitHub gives it
nitpicky = True
