"""Settings of the documentation."""

project = "agentrt"
author = "The agentrt authors"
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinxcontrib_trio",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "agentrt"
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_preserve_defaults = True  # or os.environ, a default, would be printed
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
default_role = "code"
suppress_warnings = ["ref.python", "docutils"]
