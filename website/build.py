"""Makes the site: `python website/build.py` gathers the pages, generates the reference and calls Sphinx."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from accessible import mend_pages
from errors_page import write_errors
from interfaces import write_commands, write_http
from llms import write_llms
from notebooks import write_tutorials
from reference_pages import write_reference
from sources import ROOT, gather
from sphinx.cmd.build import build_main

HERE = Path(__file__).parent


def build(out: Path) -> int:
    """The site in this folder; any warning of Sphinx is an error. Gives Sphinx's exit status."""
    source = out.parent / f"{out.name}-source"
    gather(source)
    for write in (write_tutorials, write_reference, write_commands, write_http, write_errors):
        write(source)
    shutil.rmtree(out, ignore_errors=True)
    status = build_main(["-W", "--keep-going", "-n", "-q", "-b", "html", "-c", str(HERE), str(source), str(out)])
    shutil.rmtree(out / ".doctrees", ignore_errors=True)
    mend_pages(out)
    write_llms(source, out)
    return status


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build" / "site"))
