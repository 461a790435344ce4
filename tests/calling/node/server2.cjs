// The playhouse on the TypeScript SDK 2.x: `server2.cjs stdio`, or `server2.cjs http PORT`. It serves both eras, and with `alone` as the last word
// only the stateless one.
// Written as the SDK's own documentation does it: a tool that asks returns its questions, and is entered again with the answers.
'use strict';
const { createServer } = require('node:http');
const {
    createMcpHandler,
    createRequestStateCodec,
    fromJsonSchema,
    inputRequired,
    inputResponse,
    McpServer,
    ResourceTemplate,
} = require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { localhostHostValidation, localhostOriginValidation, toNodeHandler } = require('@modelcontextprotocol/node');

const DIAL = 'play://dial';
const house = { dial: 0, grown: false };
const watched = new Set();
const waits = new Map();
const codec = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });
let notify;

const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });
const object = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const [string, integer, number] = [{ type: 'string' }, { type: 'integer' }, { type: 'number' }];
const forecast = object({ city: string, days: { type: 'array', items: object({ high: number, sky: string }) } });
const booking = object({ name: string, seats: { type: 'integer', default: 2 } }, ['name']);

const form = (message) => inputRequired.elicit({ message, requestedSchema: booking });
const forModel = (question) =>
    inputRequired.createMessage({
        messages: [{ role: 'user', content: { type: 'text', text: question } }],
        maxTokens: 50,
    });

function waiting(key) {
    if (!waits.has(key)) {
        const one = {};
        one.stopped = new Promise((resolve) => {
            one.stop = resolve;
        });
        waits.set(key, one);
    }
    return waits.get(key);
}

async function progress(ctx, done, total, message) {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken !== undefined) {
        const params = { progressToken, progress: done, total, message };
        await ctx.mcpReq.notify({ method: 'notifications/progress', params });
    }
}

// What the user, the model and the client have answered; undefined where they were not asked yet.
function user(ctx, key) {
    const said = inputResponse(ctx.mcpReq.inputResponses, key);
    if (said.kind !== 'elicit') return undefined;
    return said.action === 'accept' ? `${said.content.name} takes ${said.content.seats}` : said.action;
}

function model(ctx) {
    const said = inputResponse(ctx.mcpReq.inputResponses, 'model');
    return said.kind === 'sampling' ? `${said.result.model} says ${said.result.content.text}` : undefined;
}

const places = (ctx) => inputResponse(ctx.mcpReq.inputResponses, 'roots').roots;

async function wait({ key }, ctx) {
    const one = waiting(key);
    await progress(ctx, 0, 1, 'waiting');
    const signal = ctx.mcpReq.signal;
    await new Promise((resolve) => {
        if (signal.aborted) resolve();
        signal.addEventListener('abort', resolve);
    });
    one.stop();
    return text('never');
}

async function askAll({ question }, ctx) {
    if (!ctx.mcpReq.inputResponses) {
        const inputRequests = { user: form('Who comes?'), model: forModel(question), roots: inputRequired.listRoots() };
        return inputRequired({ inputRequests });
    }
    const where = places(ctx).map((root) => root.uri);
    return text(`${user(ctx, 'user')}, ${model(ctx)}, ${where.join(', ')}`);
}

async function askTwice(_args, ctx) {
    const [first, second] = [user(ctx, 'first'), user(ctx, 'second')];
    if (second !== undefined) return text(`${ctx.mcpReq.requestState().first}, then ${second}`);
    if (first === undefined) return inputRequired({ inputRequests: { first: form('Who comes?') } });
    const requestState = await codec.mint({ first });
    return inputRequired({ inputRequests: { second: form('And with whom?') }, requestState });
}

function playhouse({ era }) {
    const changing = { listChanged: true };
    const server = new McpServer(
        { name: 'playhouse', version: '1.0' },
        {
            instructions: 'Break a leg.',
            capabilities: {
                tools: changing,
                prompts: changing,
                resources: { ...changing, subscribe: true },
                completions: {},
                logging: {},
            },
            requestState: { verify: codec.verify },
        },
    );
    const tool = (name, inputs, run, outputs) =>
        server.registerTool(
            name,
            {
                description: name,
                inputSchema: fromJsonSchema(inputs),
                ...(outputs && { outputSchema: fromJsonSchema(outputs) }),
            },
            run,
        );
    const nothing = object({});
    tool(
        'add',
        object({ a: integer, b: integer }),
        async ({ a, b }) => ({ ...text(a + b), structuredContent: { result: a + b } }),
        object({ result: integer }),
    );
    tool(
        'forecast',
        object({ city: string, days: integer }, ['city']),
        async ({ city, days = 2 }) => {
            const found = Array.from({ length: days }, (_, day) => ({
                high: 20.5 + day,
                sky: day % 2 ? 'rain' : 'clear',
            }));
            const structuredContent = { city, days: found };
            return { ...text(JSON.stringify(structuredContent)), structuredContent };
        },
        forecast,
    );
    tool('fail', nothing, async () => {
        throw new Error('The prop broke.');
    });
    tool('count', object({ to: integer }), async ({ to }, ctx) => {
        for (let each = 1; each <= to; each += 1) await progress(ctx, each, to, `${each} of ${to}`);
        return text(`counted to ${to}`);
    });
    tool('narrate', nothing, async (_args, ctx) => {
        await ctx.mcpReq.log('debug', 'whispered', 'play');
        await ctx.mcpReq.log('info', 'said', 'play');
        await ctx.mcpReq.log('error', { said: 'loud' }, 'play');
        return text('told');
    });
    tool('ask_model', object({ question: string }), async ({ question }, ctx) => {
        const said = model(ctx);
        return said === undefined ? inputRequired({ inputRequests: { model: forModel(question) } }) : text(said);
    });
    tool('ask_user', nothing, async (_args, ctx) => {
        const said = user(ctx, 'user');
        return said === undefined ? inputRequired({ inputRequests: { user: form('Who comes?') } }) : text(said);
    });
    tool('pay', nothing, async (_args, ctx) => {
        const said = inputResponse(ctx.mcpReq.inputResponses, 'page');
        if (said.kind === 'elicit') return text(said.action === 'accept' ? 'paid' : said.action);
        const page = inputRequired.elicitUrl({ message: 'Please pay.', url: 'https://box.example/pay' });
        return inputRequired({ inputRequests: { page } });
    });
    tool('where', nothing, async (_args, ctx) => {
        if (!ctx.mcpReq.inputResponses) return inputRequired({ inputRequests: { roots: inputRequired.listRoots() } });
        return text(
            places(ctx)
                .map((root) => `${root.uri} (${root.name})`)
                .join(', '),
        );
    });
    tool('ask_all', object({ question: string }), askAll);
    tool('ask_twice', nothing, askTwice);
    const mirrored = {
        section: { ...string, 'x-mcp-header': 'Section' },
        row: { ...integer, 'x-mcp-header': 'Row' },
    };
    tool('seat', object(mirrored, ['section']), async ({ section, row = 1 }, ctx) => {
        const header = (name) => ctx.http?.req?.headers.get(`mcp-param-${name}`);
        return text(`${section} ${row}, by ${header('section')} and ${header('row')}`);
    });
    tool('wait', object({ key: string }), wait);
    tool('stopped', object({ key: string }), async ({ key }) => {
        await waiting(key).stopped;
        return text('stopped');
    });
    tool('turn', object({ value: integer }), async ({ value }) => {
        house.dial = value;
        if (notify) notify.resourceUpdated(DIAL);
        else if (era === 'modern' || watched.has(DIAL)) await server.server.sendResourceUpdated({ uri: DIAL });
        return text('turned');
    });
    const grown = () => tool('grown', nothing, async () => text('I am new.'));
    let one = house.grown ? grown() : undefined;
    tool('grow', nothing, async () => {
        house.grown = true;
        if (notify) notify.toolsChanged();
        else one = grown();
        return text('grown');
    });
    tool('shrink', nothing, async () => {
        house.grown = false;
        if (notify) notify.toolsChanged();
        else one.remove();
        return text('gone');
    });
    server.registerResource('dial', DIAL, { mimeType: 'text/plain' }, async () => ({
        contents: [{ uri: DIAL, mimeType: 'text/plain', text: String(house.dial) }],
    }));
    server.registerResource(
        'scene',
        new ResourceTemplate('play://scene/{number}', { list: undefined }),
        { mimeType: 'text/plain' },
        async (uri, { number: scene }) => ({
            contents: [{ uri: uri.href, mimeType: 'text/plain', text: `Scene ${scene}` }],
        }),
    );
    const greeting = fromJsonSchema(object({ who: string, mood: string }, ['who']));
    server.registerPrompt('greet', { description: 'How to greet a guest', argsSchema: greeting }, async (given) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Greet ${given.who}, ${given.mood ?? 'fine'}.` } }],
    }));
    if (era === 'legacy') {
        server.server.setRequestHandler('resources/subscribe', async ({ params }) => {
            watched.add(params.uri);
            return {};
        });
        server.server.setRequestHandler('resources/unsubscribe', async ({ params }) => {
            watched.delete(params.uri);
            return {};
        });
    }
    server.server.setRequestHandler('completion/complete', async (request) => ({
        completion: {
            values: ['calm', 'cheerful', 'cross'].filter((mood) => mood.startsWith(request.params.argument.value)),
        },
    }));
    return server;
}

const options = process.argv.at(-1) === 'alone' ? { legacy: 'reject' } : {};

if (process.argv[2] === 'stdio') {
    serveStdio(playhouse, options);
} else {
    const handler = createMcpHandler(playhouse, options);
    notify = handler.notify;
    const serve = toNodeHandler(handler);
    const [host, origin] = [localhostHostValidation(), localhostOriginValidation()];
    const http = createServer((request, response) => {
        if (!host(request, response) || !origin(request, response)) return;
        serve(request, response);
    });
    http.listen(Number(process.argv[3]), '127.0.0.1');
    process.on('SIGTERM', () => process.exit(0));
}
