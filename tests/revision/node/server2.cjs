// The contract of the checks on the TypeScript SDK 2.x: `server2.cjs stdio`, or `server2.cjs PORT` for HTTP.
// Written as the SDK's own documentation does it: a tool that asks returns its questions, and is entered again with the answers; states by its codec.
'use strict';
const { createServer } = require('node:http');
const { acceptedContent, createMcpHandler, createRequestStateCodec, fromJsonSchema, inputRequired, McpServer } =
    require('@modelcontextprotocol/server');
const { serveStdio } = require('@modelcontextprotocol/server/stdio');
const { localhostHostValidation, localhostOriginValidation, toNodeHandler } = require('@modelcontextprotocol/node');

const calls = new Map();
const codec = createRequestStateCodec({ key: crypto.getRandomValues(new Uint8Array(32)) });
const text = (value) => ({ content: [{ type: 'text', text: String(value) }] });
const strings = (...names) =>
    fromJsonSchema({
        type: 'object',
        properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
        required: names,
    });
const nothing = fromJsonSchema({ type: 'object', properties: {} });
const form = { type: 'object', properties: { answer: { type: 'string' } }, required: ['answer'] };

async function progress(ctx, done, total) {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    if (progressToken !== undefined) {
        await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: done, total } });
    }
}

async function slow({ key }, ctx) {
    calls.set(key, 'waiting');
    await progress(ctx, 0, 1);
    const signal = ctx.mcpReq.signal;
    const stopped = await new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), 30_000);
        const stop = () => {
            clearTimeout(timer);
            resolve(true);
        };
        if (signal.aborted) stop();
        signal.addEventListener('abort', stop);
    });
    calls.set(key, stopped ? 'stopped' : 'finished');
    return text('finished');
}

async function ask({ topic }, ctx) {
    const answer = acceptedContent(ctx.mcpReq.inputResponses, 'answer')?.answer;
    if (typeof answer === 'string') return text(`${topic}: ${answer}`);
    return inputRequired({
        inputRequests: { answer: inputRequired.elicit({ message: `About ${topic}?`, requestedSchema: form }) },
        requestState: await codec.mint({ asked: topic }),
    });
}

let notify;

function contract() {
    const server = new McpServer(
        { name: 'contract', version: '1.0' },
        {
            capabilities: {
                tools: { listChanged: true },
                prompts: { listChanged: true },
                resources: { listChanged: true },
                completions: {},
                logging: {},
            },
            requestState: { verify: codec.verify },
        },
    );
    const tool = (name, inputSchema, run) => server.registerTool(name, { description: name, inputSchema }, run);
    tool('check_slow', strings('key'), slow);
    tool('check_slow_state', strings('key'), async ({ key }) => text(calls.get(key) ?? 'unknown'));
    tool('check_ask', strings('topic'), ask);
    tool('check_ask_other', strings('topic'), ask);
    tool('check_url', strings('topic'), async ({ topic }, ctx) => {
        if (ctx.mcpReq.inputResponses) return text(topic);
        const page = inputRequired.elicitUrl({ message: 'Please look.', url: 'https://check.example/page' });
        return inputRequired({ inputRequests: { page } });
    });
    const mirrored = {
        region: { type: 'string', 'x-mcp-header': 'Region' },
        count: { type: 'integer', 'x-mcp-header': 'Count' },
    };
    tool('check_header', fromJsonSchema({ type: 'object', properties: mirrored }), async ({ region, count }) =>
        text(`${region} ${count}`),
    );
    tool('check_log', nothing, async (_args, ctx) => {
        for (const level of ['debug', 'info', 'error']) await ctx.mcpReq.log(level, 'a message');
        return text('logged');
    });
    tool('check_trace', nothing, async (_args, ctx) => text(ctx.mcpReq._meta?.traceparent));
    tool('test_tool_with_progress', nothing, async (_args, ctx) => {
        for (const done of [0, 50, 100]) await progress(ctx, done, 100);
        return text('done');
    });
    tool('test_trigger_tool_change', nothing, async () => {
        notify ? notify.toolsChanged() : server.sendToolListChanged();
        return text('told');
    });
    tool('test_trigger_prompt_change', nothing, async () => {
        notify ? notify.promptsChanged() : server.sendPromptListChanged();
        return text('told');
    });
    server.registerPrompt('greet', { description: 'How to greet', argsSchema: strings('name') }, async ({ name }) => ({
        messages: [{ role: 'user', content: { type: 'text', text: `Greet ${name}.` } }],
    }));
    server.registerResource('static', 'check://static', { mimeType: 'text/plain' }, async (uri) => ({
        contents: [{ uri: uri.toString(), mimeType: 'text/plain', text: 'static' }],
    }));
    server.server.setRequestHandler('completion/complete', async (request) => ({
        completion: { values: ['ada', 'bob'].filter((name) => name.startsWith(request.params.argument.value)) },
    }));
    return server;
}

if (process.argv[2] === 'stdio') {
    serveStdio(contract);
} else {
    const handler = createMcpHandler(contract);
    notify = handler.notify;
    const serve = toNodeHandler(handler);
    const [host, origin] = [localhostHostValidation(), localhostOriginValidation()];
    const http = createServer((request, response) => {
        if (!host(request, response) || !origin(request, response)) return;
        serve(request, response);
    });
    http.listen(Number(process.argv[2]), '127.0.0.1');
    process.on('SIGTERM', () => process.exit(0));
}
