// The second generation of the TypeScript SDK: over stdio if SIDECAR is given, over HTTP if URL is.
// Each way it speaks the newest revision and an older one.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { SIDECAR, URL: ADDRESS, TOKEN, COMPONENTS } = process.env;
const require = createRequire(`${COMPONENTS}/conformance/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");

async function transport() {
  if (ADDRESS) {
    const headers = { Authorization: `Bearer ${TOKEN}` };
    return new StreamableHTTPClientTransport(new URL(ADDRESS), { requestInit: { headers } });
  }
  const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
  return new StdioClientTransport({ command: SIDECAR, env: process.env });
}

async function check(options, revision) {
  const client = new Client({ name: "typescript-client", version: "1" }, options);
  await client.connect(await transport());
  const spoken = client.getNegotiatedProtocolVersion();
  assert.equal(spoken, revision);
  const { tools } = await client.listTools();
  assert.deepEqual(tools.map((tool) => tool.name), ["run_python"]);
  const call = (code) => client.callTool({ name: "run_python", arguments: { code, timeout: 60 } });
  const reply = await call("x = 6 * 7\nprint('hello')\nx");
  assert.ok(!reply.isError, JSON.stringify(reply));
  assert.equal(reply.structuredContent.stdout, "hello\n");
  assert.equal(reply.structuredContent.result, "42");
  assert.equal((await call("print(x)")).structuredContent.stdout, "42\n");
  const failed = await call("1 / 0");
  assert.equal(failed.isError, true);
  const { resources } = await client.listResources();
  assert.equal(resources.length, 1);
  const manual = await client.readResource({ uri: resources[0].uri });
  assert.match(manual.contents[0].text, /search_tool_docs/);
  await client.close();
}

await check({ versionNegotiation: { mode: "auto" } }, "2026-07-28");
await check({ versionNegotiation: { mode: "legacy" } }, "2025-11-25");
