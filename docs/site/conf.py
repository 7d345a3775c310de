"""Settings of the site; scripts/build_site.py makes its sources."""

import pathlib
import re

_cmake = (pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt").read_text(encoding="utf-8")

project = "Hotloop"
author = "the authors of Hotloop"
release = version = re.search(r"project\(hotloop VERSION ([0-9.]+)", _cmake)[1]
html_title = f"Hotloop {version}"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
pygments_style = "friendly"
pygments_dark_style = "native"
add_module_names = False
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 88
_accent = {"light": "#b3471d", "dark": "#f0925f"}
html_theme_options = {
    f"{mode}_css_variables": {
        "color-brand-primary": colour,
        "color-brand-content": colour,
        "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif",
        "font-stack--monospace": "ui-monospace, SFMono-Regular, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    }
    for mode, colour in _accent.items()
}
