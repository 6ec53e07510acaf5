#!/usr/bin/env python3
"""Makes docs/overview.png, the picture in the README, anew: a service over SQLite with workers, looked at by Chromium.

    cargo build --release -p anyqueue-cli
    python3 docs/screenshot.py

It needs chromium and chromedriver (Debian: chromium-driver), and takes as long as the charts are to show: --minutes. With --all DIR it also takes each page,
light, dark, and as narrow as a phone, for looking at; it is no test: those are in server/tests/browser. Numbers differ from run to run.
"""

import argparse
import base64
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

DOCS = Path(__file__).resolve().parent
# Name, messages a second, what a worker does with one, and so many workers.
QUEUES = [
    ("mail", 6, "sleep 0.3; [ $((n % 97)) -ne 0 ] || { echo 'smtp: 550 no such mailbox' >&2; exit 65; }", 2),
    ("thumbnails", 2, "sleep 0.8; [ $((n % 61)) -ne 0 ] || { echo 'the picture is cut off after 4096 bytes' >&2; exit 65; }", 1),
    ("webhooks", 3, "sleep 0.4; [ $((n % 11)) -ne 0 ] || { echo 'connection refused' >&2; exit 75; }", 1),
    ("invoices", 0.5, "sleep 1.5", 1),
]
KINDS = {"mail": ["welcome", "receipt", "reminder"], "thumbnails": ["resize"], "webhooks": ["order.paid", "order.sent"], "invoices": ["monthly"]}


def ask(url, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


class Demo:
    """A service, workers, and somebody who pushes."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.environment = dict(os.environ, ANYQUEUE_URL="sqlite:jobs.db")
        self.processes, self.url = [], None
        self.over = threading.Event()

    def start(self, *arguments, **more):
        process = subprocess.Popen([self.binary, *arguments], cwd=self.folder, env=self.environment, **more)
        self.processes.append(process)
        return process

    def run(self, *arguments):
        subprocess.run([self.binary, *arguments], cwd=self.folder, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def begin(self):
        service = self.start("serve", "--listen", "127.0.0.1:0", "--ledger", "--json", stdout=subprocess.PIPE, text=True)
        self.url = "http://" + json.loads(service.stdout.readline())["listening"]
        for name, _, script, workers in QUEUES:
            for place in range(workers):
                line = f'n=$(cut -d" " -f2); {script}'
                worker = ["work", name, "--slots", "4", "--name", f"{name}-{place + 1}", "--ledger", "--cron", "--exec", line]
                self.start(*worker, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.run("cron", "put", "nightly report", "30 2 * * *", "--zone", "Europe/Vienna", "--queue", "reports", "--kind", "report")
        self.run("cron", "put", "cleanup", "@hourly", "--queue", "invoices", "--kind", "monthly")
        self.run("limits", "put", "smtp", "--queue", "mail", "--cap", "5")
        self.run("limits", "put", "fair", "--each", "customer", "--cap", "3")
        for name, *_ in QUEUES:
            threading.Thread(target=self.push, args=(name,), daemon=True).start()
        threading.Thread(target=self.watch, daemon=True).start()
        pushed = {"payload": "report 1", "kind": "report", "delay_ms": 3_600_000}
        ask(f"{self.url}/v1/partitions/reports/messages", [pushed] * 12)
        ask(f"{self.url}/v1/partitions/reports/pause", {})

    def push(self, name):
        """Pushes in waves, as life does."""
        rate, count, began = dict((queue[0], queue[1]) for queue in QUEUES)[name], 0, time.time()
        while not self.over.wait(1):
            wave = 1.3 if int((time.time() - began) / 45) % 3 == 1 else 0.8
            due = rate * wave + random.random()
            for _ in range(int(due)):
                count += 1
                message = {"payload": f"{name} {count}", "kind": random.choice(KINDS[name]), "task_id": f"{name}-{count}"}
                if count % 9 == 0:
                    message["delay_ms"] = 90_000
                try:
                    ask(f"{self.url}/v1/partitions/{name}/messages", message)
                except OSError as error:
                    print(f"a push failed: {error}", file=sys.stderr)

    def watch(self):
        """The charts show what somebody watched."""
        with urllib.request.urlopen(f"{self.url}/v1/events") as events:
            while not self.over.is_set() and events.readline():
                pass

    def end(self):
        self.over.set()
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(60)


class Browser:
    """A Chromium, by way of its driver."""

    def __init__(self):
        self.driver = subprocess.Popen(["chromedriver", "--port=9517"], stdout=subprocess.DEVNULL)
        options = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        for _ in range(100):
            try:
                answer = ask("http://127.0.0.1:9517/session", wanted)
                break
            except urllib.error.URLError:
                time.sleep(0.2)
        self.session = "http://127.0.0.1:9517/session/" + json.loads(answer)["value"]["sessionId"]

    def protocol(self, command, **parameters):
        return json.loads(ask(f"{self.session}/goog/cdp/execute", {"cmd": command, "params": parameters}))["value"]

    def take(self, url, path, width, height, scheme, whole):
        self.protocol("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.protocol("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        ask(f"{self.session}/url", {"url": url})
        time.sleep(1.5)
        picture = self.protocol("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        Path(path).write_bytes(base64.b64decode(picture))

    def end(self):
        ask(self.session, method="DELETE")
        self.driver.terminate()
        self.driver.wait(60)


def pages(url):
    """Each page, by a name."""
    found = json.loads(ask(f"{url}/v1/tasks?partition=mail&state=succeeded&limit=1"))["tasks"]
    task = [("task", f"/tasks/{found[0]['id']}?partition=mail")] if found else []
    return [
        ("overview", "/"),
        ("partition", "/partitions/mail"),
        ("tasks", "/tasks?partition=webhooks"),
        *task,
        ("workers", "/workers"),
        ("cron", "/cron"),
        ("dead", "/dead?partition=mail"),
        ("limits", "/limits"),
        ("audit", "/audit"),
        ("confirm", "/tasks/confirm/cancel?partition=mail&kind=receipt"),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(DOCS.parent / "target/release/anyqueue"))
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--all", metavar="DIR")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demo = Demo(asked.binary, folder)
        try:
            demo.begin()
            time.sleep(asked.minutes * 60)
            browser = Browser()
            try:
                browser.take(demo.url, DOCS / "overview.png", 1200, 930, "light", False)
                for name, path in pages(demo.url) if asked.all else []:
                    for look, width, scheme in [("light", 1200, "light"), ("dark", 1200, "dark"), ("phone", 390, "light")]:
                        browser.take(demo.url + path, Path(asked.all) / f"{name}-{look}.png", width, 900, scheme, True)
            finally:
                browser.end()
        finally:
            demo.end()


if __name__ == "__main__":
    main()
