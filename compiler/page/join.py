"""Joins the page into one file: join.py OUT. Placeholders of index.html, each in a line of its own:

    {{style.css}}       a file of this folder, or of the viewer, unchanged
    {{"worker.js"}}     the same as a JavaScript string
    {{module}}          the compiler's WebAssembly, {{glue}} what starts it, {{scripts}} {path: text} of all scripts and of
                        what describes them to editors: as JavaScript strings, each gzipped, in base64

The same files give the same bytes. In the content security policy, the digests of the page's own scripts replace
{{digests}}, so no other script runs, whatever a link's script is called.
"""
import base64
import glob
import gzip
import hashlib
import json
import os
import re
import sys


HERE = os.path.dirname(__file__)
PLACES = {"viewer.js": "build/viewer-parts.js", "viewer.css": "compiler/draw/viewer/viewer.css"}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def packed(data):
    return json.dumps(base64.b64encode(gzip.compress(data, 9, mtime=0)).decode())


def string(text):  # a string must not end the script that contains it
    return json.dumps(text).replace("</", "<\\/").replace("<!--", "<\\!--")


def fill(match):
    name = match[1]
    if name == "digests":  # filled in last
        return match[0]
    if name == "module":
        return packed(read("build/page/pianola.wasm"))
    if name == "glue":
        return packed(read("build/page/pianola.js"))
    if name == "scripts":
        paths = sorted(glob.glob("schedules/**/*.lua", recursive=True))
        return packed(json.dumps({path: read(path).decode() for path in paths}).encode())
    if name.startswith('"'):
        return string(read(os.path.join(HERE, name.strip('"'))).decode())
    return read(PLACES.get(name) or os.path.join(HERE, name)).decode()


page = re.sub(r"\{\{([^{}\n]+)\}\}", fill, read(os.path.join(HERE, "index.html")).decode())
own = [hashlib.sha256(text.encode()).digest() for text in re.findall(r"<script>(.*?)</script>", page, re.S)]
page = page.replace("{{digests}}", " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in own), 1)
with open(sys.argv[1], "w") as file:
    file.write(page)
if len(page.encode()) > 1.5e6:
    sys.exit(f"{sys.argv[1]}: {len(page.encode())} bytes, but a page has at most 1.5 MB")
