"use strict";

// Files that come with the page. A page that was opened from disk may run scripts, but may not read files, so the
// content of FILE stands in the script FILE.js, compressed. `python -m docs.embed` writes those scripts.

const embedded = {}; // path -> text, as each script leaves it here

// Run a script, and return when it has run.
function runScript(path) {
  return new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = path;
    script.addEventListener("load", () => done());
    script.addEventListener("error", () => fail(new Error(`${path} is missing; the playground was not copied whole`)));
    document.head.append(script);
  });
}

// Return the content of a file as bytes.
async function unpacked(path) {
  await runScript(`${path}.js`);
  const bytes = Uint8Array.from(atob(embedded[path]), (letter) => letter.charCodeAt(0));
  delete embedded[path];
  const content = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(content).arrayBuffer());
}
