"""`make pictures`: the dashboard's picture in the documents, of the embedded cloud while a worker joins."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from dyntrain.controller.local.pace import patient
from playwright.sync_api import Page, expect, sync_playwright
from surroundings import chromium

PICTURES = Path(__file__).parents[2] / "controller" / "dashboard" / "pictures"
DYNTRAIN = str(Path(sys.executable).with_name("dyntrain"))
SIZE = {"width": 1100, "height": 820}


def main() -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [DYNTRAIN, "local", "up", "--port", "0", "--dashboard"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=plain) as cloud:
        try:
            assert cloud.stdout is not None
            output = ""
            for line in cloud.stdout:
                output += line
                if "Ctrl-C ends" in line:
                    break
            address = re.findall(r"Dashboard: (\S+)", output)[0]
            shoot(address, {**plain, **dict(re.findall(r"(AWS_\w+)=(\S+)", output))})
        finally:
            cloud.send_signal(signal.SIGINT)
            cloud.wait()


def shoot(address: str, environment: dict[str, str]) -> None:
    expect.set_options(timeout=1000 * patient(90))
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE)  # type: ignore[arg-type]
        page.goto(address)
        workers(page, 2)
        subprocess.run([DYNTRAIN, "add", "demo"], env=environment, check=True, capture_output=True)
        workers(page, 3)
        expect(page.locator(".past [data-event=pause]").first).to_be_visible()
        page.screenshot(path=PICTURES / "cluster.png")
        browser.close()


def workers(page: Page, count: int) -> None:
    expect(page.locator("[data-curve=workers] figcaption")).to_contain_text(f"workers: {count}")


if __name__ == "__main__":
    main()
