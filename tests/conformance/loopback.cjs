// Loaded into Node before the suite: whatever it serves by itself, it serves on the loopback alone. It would listen everywhere.
"use strict";

const dns = require("node:dns");
const { Server } = require("node:net");

const HOST = "127.0.0.1";
const listen = Server.prototype.listen;
const lookup = dns.lookup;

Server.prototype.listen = function (...where) {
  const [first, second] = where;
  if (first === undefined || typeof first === "function") {
    where.unshift(0, HOST);
  } else if (first !== null && typeof first === "object" && first.port !== undefined) {
    where[0] = { ...first, host: first.host ?? HOST };
  } else if (Number.isInteger(Number(first)) && typeof second !== "string") {
    where.splice(1, second === undefined || second === null ? 1 : 0, HOST);
  }
  // Without a host it would be bound at once, and who asks for the port right then has to get it here, too.
  dns.lookup = (host, ...rest) => (host === HOST ? rest.at(-1)(null, HOST, 4) : lookup(host, ...rest));
  try {
    return listen.apply(this, where);
  } finally {
    dns.lookup = lookup;
  }
};
