"""What axe finds in a report or in pages of the site: `python benchmarks/accessibility.py --axe axe.min.js PAGE…`.

axe-core is JavaScript and in no Python package of this project: `npm install axe-core` puts it at
node_modules/axe-core/axe.min.js. Needs a Chromium. Exit code 1 if anything is serious or critical.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axe", type=Path, required=True)
    parser.add_argument("--width", type=int, nargs="*", default=[390, 1280])
    parser.add_argument("pages", type=Path, nargs="+")
    asked = parser.parse_args()
    browser = next(found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name)))
    serious = 0
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for path in asked.pages:
            for width in asked.width:
                for scheme in ("light", "dark"):
                    # The page's own policy allows no script but its own; the check is one more.
                    context = chromium.new_context(
                        bypass_csp=True, viewport={"width": width, "height": 900}, color_scheme=scheme
                    )
                    page = context.new_page()
                    page.goto(path.resolve().as_uri())
                    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
                    page.evaluate(asked.axe.read_text(encoding="utf-8"))
                    found = page.evaluate("axe.run()")["violations"]
                    grave = [one for one in found if one["impact"] in ("serious", "critical")]
                    serious += len(grave)
                    print(f"{path.name} {width} px {scheme}: {len(found)} findings, {len(grave)} serious")
                    for one in found:
                        print(f"  {one['impact']}: {one['id']}: {one['help']}: {one['nodes'][0]['html'][:120]}")
                    context.close()
        chromium.close()
    return int(serious > 0)


if __name__ == "__main__":
    sys.exit(main())
