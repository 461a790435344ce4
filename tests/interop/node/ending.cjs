// How a server on stdio that stops ends a listen, to the TypeScript client 2.x: `ending.cjs COMMAND ARGUMENT… FILE`, where the program writes its id into FILE.
"use strict";

const { readFileSync } = require("node:fs");

const { Client } = require("@modelcontextprotocol/client");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const { perform, same } = require("./play.cjs");
const { REVISION } = require("./stateless.cjs");

const [command, ...args] = process.argv.slice(2);

const steps = {
  // the client looks at the revision with another program first, whose id is the first of the file
  async ending() {
    const troubles = [];
    const client = new Client({ name: "player", version: "2" }, { versionNegotiation: { mode: { pin: REVISION } } });
    client.onerror = (error) => troubles.push(error.message);
    await client.connect(new StdioClientTransport({ command, args }));
    const listening = await client.listen({ toolsListChanged: true });
    process.kill(Number(readFileSync(args.at(-1), "ascii").trim().split("\n").at(-1)), "SIGTERM");
    same("in order, and not lost", await listening.closed, "graceful");
    same("troubles", troubles, []);
    await client.close();
  },
};

(async () => {
  process.exitCode = (await perform(undefined, steps)) ? 0 : 1;
})();
