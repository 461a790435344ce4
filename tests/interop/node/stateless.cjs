// The play of the era without a handshake, as the Python clients have it in stateless.py: the steps that this era does in another way, among those of play.cjs.
// Changes go to the handlers of the client, whatever listen they belong to, so what is told is counted there.
"use strict";

const { DIAL, becomes, perform, refused, same, steps, words } = require("./play.cjs");

const REVISION = "2026-07-28";

const own = {
  async discover(player) {
    const hello = await player.hello();
    same("name", [hello.name, hello.version], ["playhouse", "1.0"]);
    same("instructions", hello.instructions, "Break a leg.");
    same("revision", hello.protocol, REVISION);
    const flags = { tools: "listChanged", resources: "subscribe", prompts: "listChanged" };
    for (const [feature, flag] of Object.entries(flags))
      same(`capability ${feature}.${flag}`, hello.capabilities[feature]?.[flag], true);
    for (const feature of ["logging", "completions"]) same(`capability ${feature}`, hello.capabilities[feature], {});
    same("tasks are an extension", hello.capabilities.tasks, undefined);
  },

  async cursors(player) {
    await refused("an empty cursor", player.tools(""), -32602);
  },

  async logging(player) {
    const { ears } = player;
    ears.logs.length = 0;
    const loud = ["error", "play", { said: "loud" }];
    const told = [["debug", "play", "whispered"], ["info", "play", "said"], loud];
    const narrate = (level) => player.call("narrate", {}, undefined, undefined, level);
    same("without a level", words(await narrate()), "told");
    await narrate("warning");
    await becomes("without a level, then at warning", () => ears.logs, [loud]);
    ears.logs.length = 0;
    await narrate("debug");
    await becomes("at debug", () => ears.logs, told);
    ears.logs.length = 0;
    await narrate("emergency");
    await narrate();
    await narrate("error");
    await becomes("no level is remembered", () => ears.logs, [loud]);
    await refused("an unknown level", narrate("shrill"), -32602);
  },

  async questions(player) {
    const { ears } = player;
    ears.asked.length = 0;
    ears.form = { action: "accept", content: { name: "Ada", seats: 3 } };
    const result = words(await player.call("ask_all", { question: "who" }));
    same("three answers", result, "Ada takes 3, parrot says WHO, file:///stage");
    same("each was asked once", ears.asked.map((asked) => "message" in asked).sort(), [false, true]);
    same("and then another", words(await player.call("ask_twice", {})), "Ada takes 3, then Ada takes 3; begun 1");
  },

  async asking(player) {
    player.ears.form = { action: "accept", content: { name: "Ada", seats: 1 } };
    const { messages } = await player.prompt("invite", {});
    same("a prompt", messages.map((each) => [each.role, each.content.text]), [["user", "Invite Ada."]]);
    same("a resource", (await player.read("play://guests")).contents[0].text, "Ada");
  },

  async pages(player) {
    const { asked, done } = player.ears;
    asked.length = done.length = 0;
    player.ears.form = { action: "accept" };
    same("accepted", words(await player.call("pay", {})), "paid");
    const [{ mode, message, url, elicitationId }] = asked;
    same("the page", [mode, message, elicitationId], ["url", "Please pay.", undefined]);
    same("its address", url.startsWith("https://box.example/pay?e="), true);
    player.ears.form = { action: "decline" };
    same("declined", words(await player.call("pay", {})), "decline");
    same("no notification of it", done, []);
  },

  async listening(player) {
    const { updates, changes } = player.ears;
    updates.length = changes.length = 0;
    const dial = await player.listen({ resourceSubscriptions: [DIAL] });
    const tools = await player.listen({ toolsListChanged: true });
    same("the filter of one", dial.honoredFilter, { resourceSubscriptions: [DIAL] });
    same("the filter of the other", tools.honoredFilter, { toolsListChanged: true });
    await player.call("turn", { value: 7 });
    await becomes("an update", () => updates, [DIAL]);
    same("the dial", (await player.read(DIAL)).contents[0].text, "7");
    same("a new tool", words(await player.call("grow", {})), "grown");
    await becomes("told of it", () => changes.slice(0, 1), ["tools"]);
    same("calling it", words(await player.call("grown", {})), "I am new.");
    await player.call("shrink", {});
    await becomes("told of its end", () => changes, ["tools", "tools"]);
    await refused("calling it then", player.call("grown", {}), -32602);
    await Promise.all([dial.close(), tools.close()]);
    same("both closed here", await Promise.all([dial.closed, tools.closed]), ["local", "local"]);
    await player.call("turn", { value: 8 });
    const both = await player.listen({ toolsListChanged: true, resourceSubscriptions: [DIAL] });
    same("both in one", both.honoredFilter, { toolsListChanged: true, resourceSubscriptions: [DIAL] });
    await player.call("turn", { value: 9 });
    await becomes("updates, none from before it began", () => updates, [DIAL, DIAL]);
    await both.close();
    same("the dial at last", (await player.read(DIAL)).contents[0].text, "9");
  },

  async mirrored(player) {
    await player.tools();
    const seats = [["stalls", 4], ["Größe", 0], [" edge ", -1], ["=?base64?QQ==?=", 2 ** 53 - 1]];
    for (const [section, row] of seats)
      same("a seat", words(await player.call("seat", { section, row })), `${section} ${row}`);
    same("an argument that is left out", words(await player.call("seat", { section: "box" })), "box 1");
  },
};

const order = [
  "discover", "listing", "cursors", "calling", "structure", "errors", "progress", "logging", "sampling", "haggling", "elicitation", "questions",
  "asking", "pages", "roots", "resources", "prompts", "listening", "cancellation", "mirrored", "quiet",
]; // prettier-ignore

module.exports = {
  REVISION,
  perform: (player) => perform(player, Object.fromEntries(order.map((name) => [name, own[name] ?? steps[name]]))),
};
