// The TypeScript SDK 1.x and client 2.x sign in: with their own OAuth, to a server that they know nothing of but the URL.
"use strict";

const assert = require("node:assert");

const BACK = "http://127.0.0.1:1/callback";
const LIFETIME = 4000;

const [which, url] = process.argv.slice(2);
const { Client, StreamableHTTPClientTransport, UnauthorizedError } =
  which === "1"
    ? {
        ...require("@modelcontextprotocol/sdk/client/index.js"),
        ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"),
        ...require("@modelcontextprotocol/sdk/client/auth.js"),
      }
    : require("@modelcontextprotocol/client");

class Provider {
  visits = 0;
  get redirectUrl() {
    return BACK;
  }
  get clientMetadata() {
    return {
      redirect_uris: [BACK],
      client_name: "player",
      grant_types: ["authorization_code", "refresh_token"],
      response_types: ["code"],
      token_endpoint_auth_method: "none",
    };
  }
  state = () => "a state";
  clientInformation = () => this.client;
  saveClientInformation = (client) => void (this.client = client);
  tokens = () => this.kept;
  saveTokens = (tokens) => void (this.kept = tokens);
  saveCodeVerifier = (verifier) => void (this.verifier = verifier);
  codeVerifier = () => this.verifier;
  async redirectToAuthorization(where) {
    this.visits += 1;
    const answer = await fetch(where, { redirect: "manual" });
    assert.strictEqual(answer.status, 302);
    this.back = new URL(answer.headers.get("location")).searchParams;
    assert.strictEqual(this.back.get("state"), "a state");
  }
}

async function main() {
  const provider = new Provider();
  let transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  const client = new Client({ name: "player", version: "1" });
  const finish = () => transport.finishAuth(which === "1" ? provider.back.get("code") : provider.back);
  try {
    await client.connect(transport);
    assert.fail("it was let in without a token");
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
  }
  await finish();
  transport = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
  const text = async (name) => {
    const result = await client.callTool({ name, arguments: {} });
    assert.ok(!result.isError, JSON.stringify(result));
    return result.content[0].text;
  };
  assert.strictEqual(await text("whoami"), "ann read");
  console.log("ok sign in");
  const first = (await text("history")).split(", ");
  assert.ok(first.includes("register") && first.includes("token authorization_code"), first);
  console.log("ok registration");
  await new Promise((done) => setTimeout(done, LIFETIME + 500));
  assert.strictEqual(await text("whoami"), "ann read");
  assert.ok((await text("history")).includes("token refresh_token"));
  assert.strictEqual(provider.visits, 1);
  console.log("ok refresh");
  // with a refresh token, 1.x gets another token by that, which may do no more, and gives up
  if (which === "1") provider.kept = { ...provider.kept, refresh_token: undefined };
  let said;
  try {
    said = await text("deploy");
  } catch (error) {
    if (!(error instanceof UnauthorizedError)) throw error;
    await finish();
    said = await text("deploy");
  }
  assert.strictEqual(said, "deployed for ann");
  assert.strictEqual(provider.visits, 2);
  console.log("ok step-up");
  await client.close();
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
