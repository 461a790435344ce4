// The TypeScript client 2.x as a player. Its default mode is `legacy`; `auto` asks for the revision without a handshake first, and a revision as mode takes no other.
"use strict";

const { Client, ResourceNotFoundError, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const play = require("./play.cjs");
const stateless = require("./stateless.cjs");

const { Ears, ROOTS, run } = play;
const LOG_LEVEL = "io.modelcontextprotocol/logLevel";

run(async (mode, where) => {
  const ears = new Ears();
  const capabilities = { sampling: { tools: {} }, elicitation: { form: {}, url: {} }, roots: {} };
  const negotiated = mode === "legacy" || mode === "auto" ? mode : { pin: mode };
  const client = new Client({ name: "player", version: "2" }, { capabilities, versionNegotiation: { mode: negotiated } });
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
    revision: mode === "legacy" ? undefined : stateless.REVISION,
    hello: () => ({
      ...client.getServerVersion(),
      instructions: client.getInstructions(),
      protocol: client.getNegotiatedProtocolVersion(),
      capabilities: client.getServerCapabilities(),
    }),
    ping: () => client.ping(),
    // without a cursor it gathers all pages by itself, and would hide them from the play
    tools: (cursor) => client.request({ method: "tools/list", params: cursor === undefined ? {} : { cursor } }),
    call: (name, given, onprogress, signal, level) =>
      client.callTool(
        { name, arguments: given, ...(level && { _meta: { [LOG_LEVEL]: level } }) },
        { onprogress, signal },
      ),
    resources: () => client.listResources(),
    templates: () => client.listResourceTemplates(),
    // its error for -32002 with the URI has another number, that of the revision after
    read: (uri) =>
      client.readResource({ uri }).catch((error) => {
        const unread = error instanceof ResourceNotFoundError && error.data.uri === uri;
        if (mode === "legacy" && unread) error = { ...error, code: -32002 };
        throw error;
      }),
    listen: (filter) => client.listen(filter),
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
    return await (mode === "legacy" ? play : stateless).perform(player);
  } finally {
    if (where instanceof URL && mode === "legacy") await transport.terminateSession();
    await client.close();
  }
});
