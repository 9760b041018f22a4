// The TypeScript SDK's Client over stdio, and its ecosystem's own count of our tokens.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const { SIDECAR, COMPONENTS, HOME } = process.env;
const require = createRequire(`${COMPONENTS}/npm/package.json`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
const { countTokens } = await load("gpt-tokenizer/encoding/o200k_base");

const CAPABILITIES = "resource://mcp-server-code-execution-mode/capabilities";
const CODE = `
import asyncio
now, text = await asyncio.gather(
    mcp_time.get_current_time(timezone="UTC"),
    mcp_filesystem.read_text_file(path="${HOME}/files/hello.txt"),
)
print(text["content"].strip())
now["timezone"]
`;

const client = new Client({ name: "typescript-sdk", version: "1" });
await client.connect(new StdioClientTransport({ command: SIDECAR, env: process.env }));
assert.equal(client.getServerVersion().name, "runbridge");

const { tools } = await client.listTools();
assert.deepEqual(tools.map((tool) => tool.name), ["run_python"]);
const { name, description, inputSchema } = tools[0];
const tokens = countTokens(JSON.stringify({ name, description, inputSchema }));
assert.ok(tokens <= 200, `${tokens} tokens`);

const reply = await client.callTool({ name: "run_python", arguments: { code: CODE, timeout: 60 } });
assert.ok(!reply.isError, JSON.stringify(reply));
assert.equal(reply.structuredContent.status, "success");
assert.equal(reply.structuredContent.stdout, "hello from a file\n");
assert.equal(reply.structuredContent.result, "'UTC'");
assert.match(reply.content[0].text, /^hello from a file\n/);

const failed = await client.callTool({ name: "run_python", arguments: { code: "1 / 0" } });
assert.equal(failed.isError, true);
assert.equal(failed.structuredContent.status, "error");

const { resources } = await client.listResources();
assert.deepEqual(resources.map((resource) => resource.uri), [CAPABILITIES]);
const manual = await client.readResource({ uri: CAPABILITIES });
for (const word of ["search_tool_docs", "save_memory", "call_tool", "gather"]) {
  assert.ok(manual.contents[0].text.includes(word), `the manual does not tell of ${word}`);
}
await client.close();
