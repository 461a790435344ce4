// The play, as the Python clients have it in play.py: the same steps with the same values, for clients in Node.
// A client takes part through a player: an object whose methods speak the client's own language and give back what was on the wire.
"use strict";

const assert = require("node:assert/strict");

const SECONDS = 20;
const EXTRAS = 60;
const DIAL = "play://dial";

class Ears {
  logs = [];
  updates = [];
  changes = [];
  asked = [];
  done = [];
  troubles = [];
  form = {};

  sampled(params) {
    this.asked.push(params);
    const said = params.messages.at(-1).content;
    const block = Array.isArray(said) ? said[0] : said;
    if (params.toolChoice?.mode === "required") {
      const input = { seats: Number(block.text.match(/\d+/)[0]) };
      const use = { type: "tool_use", id: "u1", name: params.tools[0].name, input };
      const content = [{ type: "text", text: "Let me see." }, use];
      return { role: "assistant", model: "parrot", stopReason: "toolUse", content };
    }
    const words = block.type === "tool_result" ? block.content[0].text : block.text;
    return {
      role: "assistant",
      model: "parrot",
      stopReason: "endTurn",
      content: { type: "text", text: words.toUpperCase() },
    };
  }

  elicited(params) {
    this.asked.push(params);
    return this.form;
  }
}

class Wrong extends Error {}

const ROOTS = { roots: [{ uri: "file:///stage", name: "stage" }] };

const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

function same(what, got, want) {
  try {
    assert.deepEqual(got, want);
  } catch {
    throw new Wrong(`${what}: got ${JSON.stringify(got)}, not ${JSON.stringify(want)}`);
  }
}

async function becomes(what, look, want) {
  const until = Date.now() + (SECONDS * 1000) / 2;
  while (JSON.stringify(look()) !== JSON.stringify(want) && Date.now() < until) await sleep(0.01);
  same(what, look(), want);
}

async function refused(what, asking, code) {
  let got;
  try {
    got = await asking;
  } catch (error) {
    same(`${what}, code of ${error.message}`, error.code, code);
    return error;
  }
  throw new Wrong(`${what}: got ${JSON.stringify(got)}, not an error ${code}`);
}

// Whether the revision has no handshake and no session; only a player of that era says which revision it plays.
const stateless = (player) => player.revision >= "2026-07-28";

const words = (result) => result.content.map((block) => (block.type === "text" ? block.text : "")).join("");

const steps = {
  async initialize(player) {
    const hello = await player.hello();
    same("name", [hello.name, hello.version], ["playhouse", "1.0"]);
    same("instructions", hello.instructions, "Break a leg.");
    if (hello.protocol !== undefined) same("revision", hello.protocol, "2025-11-25");
    const flags = { tools: "listChanged", resources: "subscribe", prompts: "listChanged" };
    for (const [feature, flag] of Object.entries(flags))
      same(`capability ${feature}.${flag}`, hello.capabilities[feature]?.[flag], true);
    for (const feature of ["logging", "completions"]) same(`capability ${feature}`, hello.capabilities[feature], {});
    await player.ping();
  },

  async listing(player) {
    const tools = [];
    let pages = 0;
    let cursor;
    do {
      const page = await player.tools(cursor);
      tools.push(...page.tools);
      cursor = page.nextCursor;
      pages += 1;
    } while (cursor);
    const names = tools.map((tool) => tool.name).sort();
    same("more than one page", pages > 1, true);
    same("each tool once", names.length, new Set(names).size);
    const extras = Array.from({ length: EXTRAS }, (_, n) => `extra_${String(n).padStart(2, "0")}`);
    same("extras", names.filter((name) => name.startsWith("extra_")), extras);
    const forecast = tools.find((tool) => tool.name === "forecast");
    same("description", forecast.description, "Forecast the weather of a city.");
    same("required arguments", forecast.inputSchema.required, ["city"]);
    same("default of days", forecast.inputSchema.properties.days.default, 2);
    same("kind of result", forecast.outputSchema.type, "object");
    await refused("a cursor that nobody gave out", player.tools("nonsense"), -32602);
  },

  async calling(player) {
    const five = await player.call("add", { a: 2, b: 3 });
    const value = (number) => (stateless(player) ? number : { result: number });
    same("2 + 3", [words(five), five.structuredContent, five.isError ?? false], ["5", value(5), false]);
    const numbers = Array.from({ length: 20 }, (_, n) => n);
    const sums = await Promise.all(numbers.map((n) => player.call("add", { a: n, b: n })));
    const doubled = numbers.map((n) => value(2 * n));
    same("twenty at once", sums.map((each) => each.structuredContent), doubled);
    const [picture] = (await player.call("picture", {})).content;
    same("a picture", [picture.type, picture.mimeType, picture.data], ["image", "image/png", "iVBORw0KGgo="]);
  },

  async structure(player) {
    const result = await player.call("forecast", { city: "Oslo" });
    const days = [{ high: 20.5, sky: "clear" }, { high: 21.5, sky: "rain" }];
    same("forecast", result.structuredContent, { city: "Oslo", days });
  },

  async errors(player) {
    const failed = await player.call("fail", {});
    same("a tool that failed", [failed.isError, words(failed)], [true, "The prop broke."]);
    const crashed = await player.call("crash", {});
    same("a tool that crashed", [crashed.isError, words(crashed).includes("secret")], [true, false]);
    const refusal = await refused("a tool that refused", player.call("refuse", {}), 1050);
    same("the refusal", [refusal.message.endsWith("Not tonight."), refusal.data], [true, { until: "tomorrow" }]);
    await refused("a tool that is not there", player.call("missing", {}), -32602);
    const misled = await player.call("add", { a: "two", b: 3 });
    same("wrong arguments", [misled.isError, words(misled).includes("a")], [true, true]);
    const nowhere = "play://nowhere";
    const unread = await refused("an unknown resource", player.read(nowhere), stateless(player) ? -32602 : -32002);
    same("its address", unread.data, { uri: nowhere });
    await refused("a prompt that is not there", player.prompt("missing", {}), -32602);
    await refused("a prompt without its argument", player.prompt("greet", {}), -32602);
    same("and it goes on", words(await player.call("add", { a: 1, b: 1 })), "2");
  },

  async progress(player) {
    const heard = [];
    const result = await player.call("count", { to: 3 }, (said) => heard.push([said.progress, said.total, said.message]));
    same("the end", words(result), "counted to 3");
    await becomes("progress", () => heard, [[1, 3, "1 of 3"], [2, 3, "2 of 3"], [3, 3, "3 of 3"]]);
  },

  async logging(player) {
    await player.level("warning");
    await player.call("narrate", {});
    await player.level("debug");
    await player.call("narrate", {});
    const loud = ["error", "play", { said: "loud" }];
    const told = [["debug", "play", "whispered"], ["info", "play", "said"], loud];
    await becomes("what was logged", () => player.ears.logs, [loud, ...told]);
    await player.level("emergency");
    await refused("a level that is none", player.level("shrill"), -32602);
  },

  async sampling(player) {
    player.ears.asked.length = 0;
    same("the model's words", words(await player.call("ask_model", { question: "who" })), "parrot says WHO");
    const [asked] = player.ears.asked;
    same("what it was asked", [asked.maxTokens, asked.systemPrompt], [50, "Be brief."]);
  },

  async haggling(player) {
    player.ears.asked.length = 0;
    same("the model's price", words(await player.call("haggle", { seats: 3 })), "toolUse: 36 CROWNS");
    const [first, last] = player.ears.asked;
    same("its tools", first.tools.map((tool) => tool.name), ["price"]);
    same("what it may", [first.toolChoice, last.toolChoice], [{ mode: "required" }, { mode: "none" }]);
    same("who spoke", last.messages.map((message) => message.role), ["user", "assistant", "user"]);
    const [result] = last.messages[2].content;
    same("the result of its tool", [result.toolUseId, result.content[0].text], ["u1", "36 crowns"]);
  },

  async elicitation(player) {
    player.ears.asked.length = 0;
    player.ears.form = { action: "accept", content: { name: "Ada", seats: 3 } };
    same("accepted", words(await player.call("ask_user", {})), "Ada takes 3");
    const [{ message, requestedSchema: form }] = player.ears.asked;
    same("the question", message, "Who comes?");
    same("the form", [form.type, form.required, form.properties.seats.default], ["object", ["name"], 2]);
    player.ears.form = { action: "accept", content: { name: "Ada", seats: 2 } };
    same("accepted again", words(await player.call("ask_user", {})), "Ada takes 2");
    player.ears.form = { action: "decline" };
    same("declined", words(await player.call("ask_user", {})), "decline");
    player.ears.form = { action: "cancel" };
    same("dismissed", words(await player.call("ask_user", {})), "cancel");
  },

  async pages(player) {
    const { asked, done } = player.ears;
    asked.length = done.length = 0;
    player.ears.form = { action: "accept" };
    same("accepted", words(await player.call("pay", {})), "paid");
    const [{ mode, message, url, elicitationId: id }] = asked;
    same("the page", [mode, message, url], ["url", "Please pay.", `https://box.example/pay?e=${id}`]);
    await becomes("told that it is done", () => done, [id]);
    player.ears.form = { action: "decline" };
    same("declined", words(await player.call("pay", {})), "decline");
    const required = await refused("a page first", player.call("backstage", {}), -32042);
    const [page] = required.data.elicitations;
    const door = page.elicitationId;
    const want = ["url", "Who are you?", `https://box.example/door?e=${door}`];
    same("the page that is first", [page.mode, page.message, page.url], want);
    same("the user goes there", words(await player.call("door", { id: door })), "seen");
    await becomes("told of that, too", () => done, [id, door]);
    same("and the call goes through", words(await player.call("backstage", {})), "welcome");
  },

  async roots(player) {
    same("roots", words(await player.call("where", {})), "file:///stage (stage)");
  },

  async resources(player) {
    const { resources } = await player.resources();
    same("resources", resources.map((each) => each.uri).sort(), [DIAL, "play://guests", "play://poster"]);
    same("kind of poster", resources.find((each) => each.uri === "play://poster").mimeType, "image/png");
    const [template] = (await player.templates()).resourceTemplates;
    same("template", template.uriTemplate, "play://scene/{number}");
    const [scene] = (await player.read("play://scene/4")).contents;
    same("scene", [scene.uri, scene.text], ["play://scene/4", "Scene 4"]);
    const [poster] = (await player.read("play://poster")).contents;
    same("poster", [poster.mimeType, poster.blob], ["image/png", "iVBORw0KGgo="]);
  },

  async prompts(player) {
    const [greet, invite] = (await player.prompts()).prompts;
    same("the one that asks", [invite.name, invite.arguments ?? []], ["invite", []]);
    const asks = greet.arguments.map((each) => [each.name, each.required ?? false]);
    same("prompt", [greet.name, asks], ["greet", [["who", true], ["mood", false]]]);
    const { messages } = await player.prompt("greet", { who: "Ada", mood: "calm" });
    same("messages", messages.map((each) => [each.role, each.content.text]), [["user", "Greet Ada, calm."]]);
    const { completion } = await player.complete("greet", "mood", "c");
    same("completion", completion.values, ["calm", "cheerful", "cross"]);
  },

  async subscription(player) {
    player.ears.updates.length = 0;
    await player.subscribe(DIAL);
    await player.call("turn", { value: 7 });
    await becomes("updates", () => player.ears.updates, [DIAL]);
    same("the dial", (await player.read(DIAL)).contents[0].text, "7");
    await player.unsubscribe(DIAL);
    await player.call("turn", { value: 8 });
    await sleep(0.05); // whoever subscribes in the same moment may well be told
    await player.subscribe(DIAL);
    await player.call("turn", { value: 9 });
    await becomes("updates, none while not subscribed", () => player.ears.updates, [DIAL, DIAL]);
    same("the dial at last", (await player.read(DIAL)).contents[0].text, "9");
    await player.unsubscribe(DIAL);
  },

  async changing(player) {
    player.ears.changes.length = 0;
    same("a new tool", words(await player.call("grow", {})), "grown");
    await becomes("told of it", () => player.ears.changes.slice(0, 1), ["tools"]);
    same("calling it", words(await player.call("grown", {})), "I am new.");
    await player.call("shrink", {});
    await becomes("told of its end", () => player.ears.changes, ["tools", "tools"]);
    await refused("calling it then", player.call("grown", {}), -32602);
  },

  async cancellation(player) {
    const key = `${process.pid}-${Date.now()}`;
    const stop = new AbortController();
    const begun = await new Promise((resolve, reject) => {
      let reported = false;
      const heard = () => {
        reported = true;
        stop.abort("enough");
      };
      player.call("wait", { key }, heard, stop.signal).then(reject, () => resolve(reported));
    });
    same("it had begun", begun, true);
    same("the tool was stopped", words(await player.call("stopped", { key })), "stopped");
    same("and it goes on", words(await player.call("add", { a: 1, b: 1 })), "2");
  },

  async resumption(player) {
    same("after a break", words(await player.call("blink", {})), "still here");
  },
};

steps.quiet = async (player) => {
  same("troubles", player.ears.troubles.map(String), []);
};

async function perform(player, performed = steps) {
  let right = true;
  for (const [name, step] of Object.entries(performed)) {
    if (!right && !process.env.PLAY_ON) break;
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Wrong(`not done after ${SECONDS} s`)), SECONDS * 1000);
    });
    try {
      await Promise.race([step(player), late]);
      console.log(`ok ${name}`);
    } catch (error) {
      right = false;
      console.log(`WRONG ${name}: ${error.message}`);
      if (!(error instanceof Wrong)) console.error(error);
    } finally {
      clearTimeout(timer);
    }
  }
  return right;
}

// `SCRIPT MODE URL`, or `SCRIPT MODE COMMAND ARGUMENT…`; whoever plays opens and closes the client.
async function run(playing) {
  const [mode, ...where] = process.argv.slice(2);
  const right = await playing(mode, where[0].startsWith("http") ? new URL(where[0]) : { command: where[0], args: where.slice(1) });
  process.exitCode = right ? 0 : 1;
}

module.exports = { DIAL, Ears, ROOTS, becomes, perform, refused, run, same, sleep, steps, words };
