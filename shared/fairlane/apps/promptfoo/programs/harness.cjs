'use strict';
// Calls a team's JavaScript: one JSON request a line on stdin, one JSON reply a line on the
// descriptor that the last argument names.
// What the code prints goes to stdout, which is the parent's stderr.
const fs = require('fs');
const readline = require('readline');
const { createRequire } = require('module');
const { pathToFileURL } = require('url');

const REPLIES = Number(process.argv[2]);
const modules = new Map();
const providers = new Map();

async function imported(file) {
  if (!modules.has(file)) {
    let found;
    try {
      found = await import(pathToFileURL(file).href);
    } catch (error) {
      if (!/\.(c?js)$/.test(file)) throw error;
      found = createRequire(file)(file);
    }
    modules.set(file, found.default?.default || found.default || found);
  }
  return modules.get(file);
}

// A provider is an object, or a class that is made once for its options.
function providerOf(found, request) {
  const key = JSON.stringify([request.file, request.function, request.provider]);
  if (!providers.has(key)) {
    const named = request.function ? found[request.function] : found;
    providers.set(key, typeof named === 'function' && named.prototype ? new named(request.provider) : named);
  }
  const made = providers.get(key);
  if (typeof made?.callApi !== 'function') throw new Error(`${request.file} exports no class with callApi`);
  return (...args) => made.callApi(...args);
}

async function functionOf(request) {
  if (request.code !== undefined) return new Function(...request.names, request.code);
  const found = await imported(request.file);
  if (request.provider !== undefined) return providerOf(found, request);
  const wanted = request.function ? found[request.function] : undefined;
  if (typeof wanted === 'function') return wanted;
  if (typeof found === 'function') return found;
  if (typeof found.default === 'function') return found.default;
  if (request.values) return () => wanted ?? found;
  throw new Error(`${request.file} exports no function${request.function ? ` ${request.function}` : ''}`);
}

async function answered(request) {
  try {
    const value = await (await functionOf(request))(...request.args);
    if (request.hook) return { value: { returned: value === undefined ? null : value, args: request.args } };
    return { value: value === undefined ? null : value };
  } catch (error) {
    return { error: String((error && error.message) || error) };
  }
}

function line(reply) {
  try {
    return JSON.stringify(reply);
  } catch (error) {
    return JSON.stringify({ error: `the value is no JSON: ${error.message}` });
  }
}

function send(text) {
  const bytes = Buffer.from(`${text}\n`);
  let sent = 0;
  while (sent < bytes.length) sent += fs.writeSync(REPLIES, bytes, sent);
}

(async () => {
  for await (const text of readline.createInterface({ input: process.stdin })) {
    send(line(await answered(JSON.parse(text))));
  }
  process.exit(0);
})();
