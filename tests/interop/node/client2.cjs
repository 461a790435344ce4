// The TypeScript client 2.x as a player. Its default mode is `legacy`; `auto` asks for the revision without a handshake first.
"use strict";

const { Client, ResourceNotFoundError, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const { Ears, ROOTS, perform, run } = require("./play.cjs");

run(async (mode, where) => {
  const ears = new Ears();
  const capabilities = { sampling: { tools: {} }, elicitation: { form: {}, url: {} }, roots: {} };
  const client = new Client({ name: "player", version: "2" }, { capabilities, versionNegotiation: { mode } });
  client.onerror = (error) => ears.troubles.push(error);
  client.setRequestHandler("sampling/createMessage", ({ params }) => ears.sampled(params));
  client.setRequestHandler("elicitation/create", ({ params }) => ears.elicited(params));
  client.setRequestHandler("roots/list", () => ROOTS);
  client.setNotificationHandler("notifications/message", ({ params }) => {
    ears.logs.push([params.level, params.logger, params.data]);
  });
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
    ears.updates.push(params.uri);
  });
  client.setNotificationHandler("notifications/elicitation/complete", ({ params }) => {
    ears.done.push(params.elicitationId);
  });
  client.setNotificationHandler("notifications/tools/list_changed", () => {
    ears.changes.push("tools");
  });
  const transport = where instanceof URL ? new StreamableHTTPClientTransport(where) : new StdioClientTransport(where);
  const player = {
    ears,
    hello: () => ({
      ...client.getServerVersion(),
      instructions: client.getInstructions(),
      protocol: client.getNegotiatedProtocolVersion(),
      capabilities: client.getServerCapabilities(),
    }),
    ping: () => client.ping(),
    // without a cursor it gathers all pages by itself, and would hide them from the play
    tools: (cursor) => client.request({ method: "tools/list", params: cursor === undefined ? {} : { cursor } }),
    call: (name, given, onprogress, signal) => client.callTool({ name, arguments: given }, { onprogress, signal }),
    resources: () => client.listResources(),
    templates: () => client.listResourceTemplates(),
    // its error for -32002 with the URI has another number, that of the revision after
    read: (uri) =>
      client.readResource({ uri }).catch((error) => {
        if (error instanceof ResourceNotFoundError && error.data.uri === uri) error = { ...error, code: -32002 };
        throw error;
      }),
    subscribe: (uri) => client.subscribeResource({ uri }),
    unsubscribe: (uri) => client.unsubscribeResource({ uri }),
    prompts: () => client.listPrompts(),
    prompt: (name, given) => client.getPrompt({ name, arguments: given }),
    complete: (name, argument, value) =>
      client.complete({ ref: { type: "ref/prompt", name }, argument: { name: argument, value } }),
    level: (level) => client.setLoggingLevel(level),
  };
  await client.connect(transport);
  try {
    return await perform(player);
  } finally {
    if (where instanceof URL) await transport.terminateSession();
    await client.close();
  }
});
