import assert from "node:assert/strict";
import { test } from "node:test";

import {
  FatalError, agent, bytesOf, callback, codeExecutor, component, content, examples, functionCallsOf, functionResponsesOf,
  hasTrailingCodeExecutionResult, isFinalResponse, liveModel, llmAgent, model, plugin, s, summarizer, textOf, textOfBytes, tool, toolUse, toolset,
} from "hatchery-guest";
import { MockHost, answer, collect } from "hatchery-guest/testing";
import { createExports } from "../src/exports.js";

const scale = tool({
  name: "scale",
  description: "Multiplies a number.",
  parameters: s.object({ number: s.number("The number."), by: s.integer().default(2), tags: s.array(s.string()).optional() }),
  run: ({ number, by }, ctx) => {
    ctx.state.set("last", number);
    return { result: number * by };
  },
});

test("an item may have the name of a property that all objects have", () => {
  const constructor = tool({ name: "constructor", run: () => 1 });
  const { tools } = component({ tools: [constructor, tool({ name: "toString", run: () => 2 }), tool({ name: "__proto__", run: () => 3 })] });
  assert.deepEqual(Object.keys(tools), ["constructor", "toString", "__proto__"]);
});

test("an option that is undefined is absent", () => {
  const made = tool({ name: "now", description: undefined, parameters: undefined, run: () => "noon" });
  assert.equal(made.description, "");
  assert.equal(made.call({}), "noon");
  assert.equal(llmAgent({ name: "clerk", description: undefined }).description, "");
  assert.deepEqual(Object.keys(plugin({ name: "log", beforeRun() {}, afterRun: undefined }).hooks), ["beforeRun"]);
});

test("a schema is built from its properties", () => {
  assert.deepEqual(JSON.parse(JSON.stringify(scale.parameters)), {
    type: "object",
    properties: {
      number: { type: "number", description: "The number." },
      by: { type: "integer", default: 2 },
      tags: { type: "array", items: { type: "string" } },
    },
    required: ["number"],
  });
});

test("a tool is called with checked arguments and defaults", () => {
  const host = new MockHost();
  assert.deepEqual(scale.call({ number: 3 }, host.context()), { result: 6 });
  assert.deepEqual(host.state, { last: 3 });
  for (const [args, message] of [
    [{}, /args has no `number`/],
    [{ number: "3" }, /args\.number must be a number/],
    [{ number: 3, tags: ["a", 1] }, /args\.tags\[1\] must be a string/],
    [{ number: 3, size: 1 }, /`scale` has no argument `size`; it has number, by, tags/],
  ]) {
    assert.throws(() => scale.call(args, host.context()), message);
  }
});

test("values of different types to choose from have no type, and each is accepted", () => {
  const retry = tool({ name: "retry", parameters: s.object({ times: s.oneOf([1, "auto"], "How often.") }), run: ({ times }) => times });
  assert.deepEqual({ ...retry.parameters.properties.times }, { enum: [1, "auto"], description: "How often." });
  assert.deepEqual([retry.call({ times: 1 }), retry.call({ times: "auto" })], [1, "auto"]);
  assert.throws(() => retry.call({ times: "1" }), /args\.times must be one of 1, "auto"/);
  assert.deepEqual({ ...s.oneOf([1, 2]) }, { type: "number", enum: [1, 2] });
});

test("an optional property without a default is undefined if it is omitted", () => {
  const list = tool({ name: "list", parameters: s.object({ tags: s.array(s.string()).optional() }), run: (args) => args });
  assert.deepEqual(list.call({}), {});
});

test("defaults are added at every level, and each call has its own", () => {
  const place = s.object({ name: s.string(), unit: s.string().default("m") });
  const measure = tool({
    name: "measure",
    parameters: s.object({ place, others: s.array(place).default([]), tags: s.array(s.string()).default([]) }),
    run: (args) => (args.tags.push("seen"), args),
  });
  for (let call = 0; call < 2; call += 1) {
    assert.deepEqual(measure.call({ place: { name: "here" }, others: [{ name: "there" }] }), {
      place: { name: "here", unit: "m" }, others: [{ name: "there", unit: "m" }], tags: ["seen"],
    });
  }
});

test("null stands for an optional property that is omitted, unless the property can be null", () => {
  const parameters = s.object({
    number: s.integer(), unit: s.string().default("m"), tag: s.string().optional(), note: s.any().optional(), place: { type: ["string", "null"] },
  });
  const measure = tool({ name: "measure", parameters, run: (args) => args });
  const args = { number: 1, unit: null, tag: null, note: null, place: null };
  assert.deepEqual(measure.call(args), { number: 1, unit: "m", note: null, place: null });
  assert.throws(() => measure.call({ ...args, number: null }), /args\.number must be an integer/);
});

test("properties have any name", () => {
  const build = tool({
    name: "build", parameters: s.object({ constructor: s.string(), toString: s.string().optional() }), run: ({ constructor }) => constructor,
  });
  assert.equal(build.call({ constructor: "ada" }), "ada");
  assert.throws(() => build.call({}), /args has no `constructor`/);
});

test("a custom agent yields strings and contents", async () => {
  const poet = agent({
    name: "poet",
    async *run(ctx) {
      yield "one";
      yield textOf(await ctx.generate("More?"));
      for (const response of ctx.stream("And more?")) if (!response.partial) yield response.content;
    },
  });
  const host = new MockHost({ responses: ["two", "three four"] });
  const outputs = await collect(poet.run(host.context()));
  assert.deepEqual(outputs.map((output) => (typeof output === "string" ? output : textOf(output))), ["one", "two", "three four"]);
  assert.equal(textOf(host.requests[0].contents[0]), "More?");
});

test("a tool controls the run and calls other tools and agents", async () => {
  const host = new MockHost({ tools: { double: ({ number }) => 2 * number }, subAgents: { helper: [{ content: content("done") }] } });
  const ctx = host.context();
  ctx.transferTo("helper");
  ctx.escalate();
  ctx.skipSummarization();
  ctx.requestConfirmation("Sure?", { days: 2 });
  assert.deepEqual([host.transferredTo, host.hasEscalated, host.hasSkippedSummarization], ["helper", true, true]);
  assert.deepEqual(host.requestedConfirmation, { hint: "Sure?", payload: { days: 2 } });
  const withoutKey = new MockHost({ idempotencyKey: undefined }).context();
  assert.deepEqual([ctx.idempotencyKey, withoutKey.idempotencyKey], ["key-of-call", undefined]);
  assert.equal(ctx.callTool("double", { number: 2 }), 4);
  assert.throws(() => ctx.callTool("triple"), /tool `triple` not found/);
  assert.deepEqual((await collect(ctx.subAgent("helper"))).map(textOf), ["done"]);
});

test("a user is asked for a credential, and again after it is refused", () => {
  const config = { authScheme: { type: "apiKey", in: "header", name: "X-Key" } };
  const unanswered = new MockHost();
  assert.equal(unanswered.context().credential(config), undefined);
  assert.deepEqual(unanswered.requestedCredential, config);
  const host = new MockHost({ credential: { authType: "apiKey", apiKey: "k" } });
  const ctx = host.context();
  const credential = ctx.credential(config);
  assert.deepEqual([credential.apiKey, host.requestedCredential], ["k", undefined]);
  ctx.refuseCredential(config, credential);
  assert.equal(ctx.credential(config), undefined);
  assert.throws(() => host.readOnlyContext().credential(config), { code: "READ_ONLY" });
});

test("an integer argument can be larger than a number represents exactly", () => {
  const next = tool({ name: "next", parameters: s.object({ id: s.integer() }), run: ({ id }) => BigInt(id) + 1n });
  assert.equal(next.call({ id: 2n ** 60n }, new MockHost().context()), 2n ** 60n + 1n);
});

test("an invalid export is named", () => {
  assert.throws(() => component({ tools: [{}] }), /`tools` has an item of another kind; create its items with tool\(/);
  assert.throws(() => component({ modles: [] }), /exports agents, tools, .*, not `modles`/);
  assert.throws(() => component({ tools: scale }), /^TypeError: `tools` is a list$/);
  assert.throws(() => component({ tools: [scale, tool({ name: "scale", run() {} })] }), /two tools are named `scale`/);
  assert.throws(() => tool({ name: "x" }), /tool `x` needs a function `run`/);
  assert.throws(() => callback({ name: "x", hook: "before_tool", run() {} }), /unknown hook `before_tool`; use one of beforeAgent/);
});

test("sub-agents are exported with their agent", () => {
  const child = llmAgent({ name: "child" });
  const { agents } = component({ agents: [llmAgent({ name: "parent", subAgents: [child, "other/agent"] })] });
  assert.deepEqual(Object.keys(agents), ["parent", "child"]);
});

test("an item of an agent that is not exported is named", () => {
  const trim = callback({ name: "trim", hook: "beforeTool", run: () => undefined });
  const child = llmAgent({ name: "child", tools: [scale, toolUse("other/tool"), "more"], beforeTool: [trim] });
  const agents = [llmAgent({ name: "parent", subAgents: [child] })];
  assert.throws(() => component({ agents }), /^TypeError: agent `child` uses `scale`, which is not exported; add it to `tools` of component\(\{…\}\)$/);
  assert.throws(() => component({ agents, tools: [scale] }), /agent `child` uses `trim`, .* add it to `callbacks`/);
  component({ agents, tools: [scale], callbacks: [trim] });
});

test("errors have codes", () => {
  const error = new FatalError("it is broken", "BROKEN");
  assert.deepEqual([error.code, error.message, error instanceof Error], ["BROKEN", "it is broken", true]);
});

test("a reference to something without a name is refused", () => {
  assert.throws(() => component({ agents: [llmAgent({ name: "x", tools: ["b", 5] })] }), /^TypeError: agent `x`: 5 has no name; use an item of this component/);
  const roll = () => 4;
  assert.throws(() => component({ agents: [llmAgent({ name: "x", tools: [roll] })] }), /^TypeError: agent `x`: the function `roll` is no item; create one with tool\(\{…\}\)/);
  assert.throws(() => component({ agents: [llmAgent({ name: "x", planner: "guess" })] }), /agent `x`: "guess" is not a planner/);
});

test("the function of an instruction returns a string", async () => {
  const agents = [
    llmAgent({ name: "greets", instruction: async (ctx) => `Greet ${ctx.info.user}.` }),
    llmAgent({ name: "forgets", instruction: (ctx) => void ctx.info.user }),
  ];
  const { guestAgents } = exportsOf({ agents });
  assert.equal(await guestAgents.computeInstruction("greets", false), "Greet user.");
  const message = "the function of an instruction returns a string, not undefined";
  await assert.rejects(() => guestAgents.computeInstruction("forgets", false), { code: "COMPONENT_FAILED", message });
});

test("an option of an agent that is not possible is named", () => {
  const trim = callback({ name: "trim", hook: "beforeTool", run: () => undefined });
  for (const [options, message] of [
    [{ tools: "roll" }, /^TypeError: agent `x`: `tools` is a list, not a string$/],
    [{ beforeTool: trim }, /^TypeError: agent `x`: `beforeTool` is a list, not a single item$/],
    [{ includeContents: "all" }, /^TypeError: agent `x`: `includeContents` is "default" or "none", not "all"$/],
  ]) {
    assert.throws(() => component({ agents: [llmAgent({ name: "x", ...options })] }), message);
  }
});

test("an unknown option is named", () => {
  assert.throws(() => llmAgent({ name: "x", modl: "y" }), /^TypeError: agent `x` has no option `modl`; did you mean `model`\?$/);
  assert.throws(() => llmAgent({ name: "x", subagents: [] }), /did you mean `subAgents`\?$/);
  assert.throws(() => llmAgent({ name: "x", colour: "y" }), /agent `x` has no option `colour`; its options are name, description, .*model/);
  assert.throws(() => plugin({ name: "x", beforeModels() {} }), /plugin `x`: `beforeModels` is not a hook; did you mean `beforeModel`\?$/);
  assert.throws(() => plugin({ name: "x", whenAsked() {} }), /plugin `x`: `whenAsked` is not a hook; its functions are onUserMessage/);
});

const EMPTY = component({});

/** Returns the exports of a component as a host calls them. */
const exportsOf = (items, host = new MockHost()) => createExports({ ...EMPTY, ...component(items) }, host, () => {});

const request = (text) => ({
  model: "", contents: [{ role: "user", parts: [{ data: { tag: "text", val: text }, thought: false, thoughtSignature: null, extra: null }] }],
  systemInstructions: [], tools: [], modelTools: [], config: null,
});

const textsOf = (responses) => responses.map((response) => response.content?.parts.map((part) => part.data.val).join("") ?? response.errorCode);

test("a model streams, or its pieces are joined", async () => {
  const parrot = model({
    name: "parrot",
    *run({ contents }) {
      for (const word of textOf(contents[0]).split(" ")) yield `${word} `;
      if (textOf(contents[0]) === "then fail") throw new FatalError("it broke", "BROKEN");
      yield { finishReason: "STOP" };
    },
  });
  const whole = await answer(parrot, { contents: [content("one two", "user")] }, new MockHost().context());
  assert.deepEqual([textOf(whole), whole.finishReason, whole.content.parts.length], ["one two ", "STOP", 1]);
  const { guestModels } = exportsOf({ models: [parrot] });
  assert.deepEqual(guestModels.describe(), ["parrot"]);
  const pieces = await collect(await guestModels.generate("parrot", request("one two"), true));
  assert.deepEqual(textsOf(pieces).slice(0, 2), ["one ", "two "]);
  assert.ok(pieces.every((piece) => piece.partial));
  assert.deepEqual(textsOf(await collect(await guestModels.generate("parrot", request("one two"), false))), ["one two "]);
  assert.deepEqual(textsOf(await collect(await guestModels.generate("parrot", request("then fail"), true))).at(-1), "BROKEN");
  await assert.rejects(() => guestModels.generate("parrot", request("then fail"), false), { code: "BROKEN", message: "it broke" });
});

test("code is run, events are summarized and examples selected", async () => {
  const adder = codeExecutor({
    name: "adder",
    run({ code, inputFiles }) {
      if (inputFiles.length) return { stdout: textOfBytes(inputFiles[0].content), outputFiles: [{ name: "b", content: "größer" }] };
      return String(code.split("\n").reduce((sum, line) => sum + Number(line), 0));
    },
  });
  const minutes = summarizer({ name: "minutes", run: (events, ctx) => textOf(ctx.generate(events.map(textOf).join(" "))) });
  const sums = examples({ name: "sums", run: (query) => (query.includes("+") ? [{ input: "1 + 1", output: "2" }] : []) });
  const host = new MockHost({ responses: ["short"] });
  const { guestCodeExecutors, guestSummarizers, guestExamples } = exportsOf(
    { codeExecutors: [adder], summarizers: [minutes], examples: [sums] }, host,
  );
  const run = (code, inputFiles = []) => guestCodeExecutors.execute("adder", { code, inputFiles, executionId: null });
  assert.deepEqual(await run("1\n2"), { stdout: "3", stderr: "", outputFiles: [] });
  const written = await run("", [{ name: "a", mimeType: "text/plain", content: bytesOf("kühl 日本") }]);
  assert.deepEqual([written.stdout, textOfBytes(written.outputFiles[0].content)], ["kühl 日本", "größer"]);
  const summary = await guestSummarizers.summarize("minutes", []);
  assert.equal(summary.parts[0].data.val, "short");
  const [example] = await guestExamples.examples("sums", "2 + 2");
  assert.deepEqual([example.input.role, example.output[0].role], ["user", "model"]);
});

test("null in the state changes of an appended event deletes the key", () => {
  const diary = new MockHost().context().sessions("diary");
  diary.create("today", { mood: "good", page: 1 });
  diary.append("today", { actions: { stateDelta: { mood: null, page: 2 } } });
  assert.deepEqual(diary.get("today").state, { page: 2 });
});

test("a plugin has the hooks of its object", async () => {
  const manners = plugin({
    name: "manners",
    beforeModel(asked) {
      asked.systemInstructions.push("Be polite.");
    },
    close: (ctx) => ctx.log.info("closed"),
  });
  const host = new MockHost();
  const { guestPlugins } = exportsOf({ plugins: [manners] }, host);
  assert.deepEqual(guestPlugins.describe(), [{ name: "manners", hooks: ["before-model", "close"] }]);
  const action = await guestPlugins.beforeModel("manners", request("hi"));
  assert.deepEqual([action.tag, action.val.systemInstructions], ["revise", ["Be polite."]]);
  await guestPlugins.close("manners");
  assert.equal(host.logLines[0][1], "closed");
});

test("a toolset computes its tools", async () => {
  const ban = tool({ name: "ban", parameters: s.object({ user: s.string() }), run: ({ user }) => user });
  const admin = toolset({ name: "admin", tools: (ctx) => (ctx.state.get("admin") ? [ban] : []) });
  const host = new MockHost();
  assert.deepEqual(await admin.tools(host.readOnlyContext()), []);
  await assert.rejects(() => admin.call("ban", { user: "eve" }, host.context()), /toolset `admin` has no tool `ban` now/);
  host.state.admin = true;
  const { guestToolsets } = exportsOf({ toolsets: [admin] }, host);
  assert.deepEqual((await guestToolsets.tools("admin")).map(({ declaration }) => declaration.name), ["ban"]);
  assert.equal(await guestToolsets.call("admin", "ban", '{"user":"eve"}'), '"eve"');
});

test("an agent has all settings of YAML", () => {
  const helper = llmAgent({ name: "helper" });
  const sums = examples({ name: "sums", run: () => [] });
  const admin = toolset({ name: "admin", tools: () => [] });
  const chief = llmAgent({
    name: "chief",
    tools: [scale, toolUse("archive/find", { args: { limit: 10 }, confirm: true }), toolUse.agent(helper), toolUse.examplesFrom(sums)],
    toolsets: [admin, { name: "search", prefix: "s_" }],
    examplesFrom: sums,
    planner: { budget: 100, includeThoughts: true },
    runCode: { executor: "python/starlark", errorRetries: 1, codeDelimiters: [["<<", ">>"]] },
    includeContents: "none",
  });
  const [{ kind: { val } }] = exportsOf({ agents: [chief], tools: [scale], toolsets: [admin], examples: [sums] }).guestAgents.describe();
  assert.deepEqual(val.tools, [
    { name: "scale", args: null, requiresConfirmation: null },
    { name: "archive/find", args: '{"limit":10}', requiresConfirmation: true },
    { name: "AgentTool", args: '{"agent":"helper"}', requiresConfirmation: null },
    { name: "ExampleTool", args: '{"examples":"sums"}', requiresConfirmation: null },
  ]);
  assert.deepEqual(val.toolsets, [{ name: "admin", only: [], prefix: null }, { name: "search", only: [], prefix: "s_" }]);
  assert.deepEqual([val.examples, val.planner.val, val.includeContents], [
    { tag: "chosen", val: "sums" }, '{"thinkingBudget":100,"includeThoughts":true}', "none",
  ]);
  assert.deepEqual([val.codeExecution.val.executor, val.codeExecution.val.codeDelimiters], ["python/starlark", [["<<", ">>"]]]);
});

test("code runs an app and reads its answer", () => {
  const host = new MockHost({ apps: { clerk: ({ message }) => ["One moment.", `You said ${textOf(message)}.`] } });
  const { runner } = host.context();
  const run = runner.run({ app: "clerk", message: "hi", session: "desk", stateDelta: { urgent: true } });
  run.cancel();
  assert.equal(run.text(), "You said hi.");
  assert.deepEqual([host.runRequests[0].session, host.runRequests[0].stateDelta], ["desk", { urgent: true }]);
  assert.deepEqual([host.cancelledRuns, runner.listApps()], [["e-run-1"], ["clerk"]]);
  assert.throws(() => runner.run({ app: "nobody", message: "hi" }), { code: "NOT_FOUND" });
  const failing = new MockHost({ apps: { clerk: () => [{ errorCode: "BROKEN", errorMessage: "it broke" }] } });
  assert.throws(() => failing.context().runner.run({ app: "clerk", message: "hi" }).text(), { code: "BROKEN", message: "it broke" });
});

test("code talks to an app in a live run", () => {
  const host = new MockHost({ apps: { clerk: ({ message }) => [`You said ${textOf(message)}.`] } });
  const run = host.context().runner.runLive({ app: "clerk", session: "desk" });
  run.send("one");
  run.send(content("two", "user"));
  assert.deepEqual([run.session, run.turn().map(textOf), run.turn().map(textOf)], ["desk", ["You said one.", ""], ["You said two.", ""]]);
  run.close();
  assert.deepEqual([...run], []);
  assert.throws(() => run.send("three"), { code: "LIVE_CLOSED" });
  assert.deepEqual(host.runRequests.map(({ session }) => session), ["desk", "desk"]);
  const sound = host.context().runner.runLive({ app: "clerk" });
  sound.send({ blob: { mimeType: "audio/pcm", data: new Uint8Array([1]) } });
  assert.throws(() => sound.turn(), { code: "BAD_INPUT" });
  assert.throws(() => sound.send({ shout: true }), /a live request is a string, a content, or an object with/);
  assert.throws(() => host.context().runner.runLive({ app: "nobody" }), { code: "NOT_FOUND" });
});

test("a live model yields what it says, and its failure is the last response", async () => {
  const parrot = liveModel({
    name: "parrot",
    async *run(request, connection) {
      yield { usageMetadata: { totalTokenCount: 1 } };
      for await (const { content: message, blob, toolResponses, activityStart } of connection) {
        if (activityStart) yield { interrupted: true };
        if (blob) yield { outputTranscription: { text: `${blob.data.length} bytes`, finished: true } };
        if (toolResponses) yield { toolCalls: [{ id: "c2", name: toolResponses[0].name }] };
        if (message) yield textOf(message);
        if (message && textOf(message) === connection.config.stop) throw new FatalError("enough", "RUDE");
        yield { turnComplete: true };
      }
    },
  });
  const { guestLiveModels } = createExports(component({ liveModels: [parrot] }), new MockHost(), () => {});
  assert.deepEqual(guestLiveModels.describe(), ["parrot"]);
  async function* requests() {
    yield { tag: "content", val: { content: { role: "user", parts: [{ data: { tag: "text", val: "hi" } }] }, partial: false } };
    yield { tag: "activity-start" };
    yield { tag: "blob", val: { mimeType: "audio/pcm", data: new Uint8Array(3), displayName: null } };
    yield { tag: "tool-responses", val: [{ id: "c1", name: "f", response: "{}", extra: null }] };
    yield { tag: "content", val: { content: { role: "user", parts: [{ data: { tag: "text", val: "stop" } }] }, partial: false } };
  }
  const request = { model: "", contents: [], systemInstructions: [], tools: [], modelTools: [], config: null };
  const responses = await collect(await guestLiveModels.connect("parrot", request, '{"stop":"stop"}', requests()));
  assert.deepEqual(responses.map(({ tag }) => tag), [
    "usage", "content", "turn-complete", "interrupted", "turn-complete", "output-transcription", "turn-complete", "tool-calls",
    "turn-complete", "content", "failed",
  ]);
  assert.deepEqual(responses.at(-1).val, { code: "RUDE", message: "enough" });
  assert.deepEqual(responses[7].val, [{ id: "c2", name: "f", args: "{}", extra: null }]);
  await assert.rejects(guestLiveModels.connect("crow", request, "{}", requests()), { code: "NOT_FOUND" });
});

test("other sessions are created, read and deleted", () => {
  const host = new MockHost({ sessions: { diary: { old: ["one", "two"] } } });
  const diary = host.context().sessions("diary");
  assert.deepEqual(diary.create("today", { mood: "good" }).state, { mood: "good" });
  assert.equal(diary.append("today", "Dear diary.").author, "agent");
  assert.deepEqual(diary.events("old", { recent: 1 }).map(textOf), ["two"]);
  assert.deepEqual(diary.list().map(({ id }) => id), ["today", "old"]);
  diary.delete("old");
  assert.equal(diary.get("old"), undefined);
  assert.throws(() => host.context().sessions("app").append("session", "x"), { code: "SESSION_IN_USE" });
  assert.deepEqual(host.sessions.diary.today.events.map(textOf), ["Dear diary."]);
});

test("the progress of a tool is recorded", async () => {
  const bake = tool({
    name: "bake",
    description: "Bakes.",
    parameters: s.object({ loaves: s.integer() }),
    run({ loaves }, ctx) {
      for (let loaf = 1; loaf <= loaves; loaf += 1) ctx.reportProgress({ progress: loaf, total: loaves, message: `loaf ${loaf}` });
      ctx.reportProgress({ progress: 0.5 });
    },
  });
  const host = new MockHost();
  await bake.call({ loaves: 2 }, host.context());
  const loaf = (progress) => ({ progress, total: 2, message: `loaf ${progress}` });
  assert.deepEqual(host.progress, [loaf(1), loaf(2), { progress: 0.5 }]);
  for (const report of [{ progress: NaN }, { progress: 1, total: Infinity }]) {
    assert.throws(() => host.context().reportProgress(report), { code: "BAD_INPUT" });
  }
  assert.throws(() => host.readOnlyContext().reportProgress({ progress: 1 }), { code: "READ_ONLY" });
});

test("the metadata of a run is readable and empty by default", () => {
  assert.deepEqual(new MockHost({ runMetadata: { tenant: "acme" } }).context().runMetadata, { tenant: "acme" });
  assert.deepEqual(new MockHost().context().runMetadata, {});
});

test("a version of an artifact has metadata", () => {
  const host = new MockHost();
  const { artifacts } = host.context();
  assert.equal(artifacts.save("chart", new Uint8Array([1, 2, 3]), "image/png"), 0);
  assert.equal(artifacts.save("chart", "grün", undefined, { author: "ada" }), 1);
  assert.deepEqual(artifacts.version("chart"), { version: 1, size: 5, createdMicros: 1e6, customMetadata: { author: "ada" } });
  const first = { version: 0, mimeType: "image/png", size: 3, createdMicros: 0, customMetadata: {} };
  assert.deepEqual(artifacts.version("chart", 0), first);
  assert.deepEqual([artifacts.version("chart", 2), artifacts.version("other")], [undefined, undefined]);
  assert.deepEqual(host.artifactMetadata, { chart: [{}, { author: "ada" }] });
  artifacts.delete("chart");
  assert.deepEqual(host.artifactMetadata, {});
});

test("added memory is found once", () => {
  const host = new MockHost({ userMessage: "I like bread", sessions: { app: { old: ["bread and butter"] } } });
  const { memory } = host.context();
  memory.addSession();
  memory.addSession("old");
  memory.addEvents(["a note about bread", "a note about bread"]);
  assert.equal(memory.search("bread").length, 3);
});

test("a test sets up the run, its plugins, arguments and embeddings", () => {
  const host = new MockHost({
    info: { streamingMode: "sse", remaining: { modelCalls: 3 } }, plugins: [{ name: "audit", hooks: ["onEvent"] }], arguments: { limit: 1 },
    models: ["local:*"], embed: (text) => [text.length],
  });
  const ctx = host.context();
  assert.deepEqual([ctx.info.streamingMode, ctx.info.remaining.modelCalls, ctx.arguments], ["sse", 3, { limit: 1 }]);
  assert.deepEqual([ctx.plugins().length, ctx.plugin("audit").hooks, ctx.plugin("none")], [1, ["onEvent"], undefined]);
  assert.deepEqual([ctx.models(), ctx.embed("local:x", ["a", "bc"])], [["local:*"], [[1], [2]]]);
  ctx.endInvocation();
  assert.ok(host.hasEndedInvocation);
});

test("an instruction only reads", () => {
  const ctx = new MockHost({ state: { a: 1 } }).readOnlyContext();
  assert.equal(ctx.state.get("a"), 1);
  assert.throws(() => ctx.state.set("a", 2), { code: "READ_ONLY" });
});

test("the calls and responses of an event are those of its message", () => {
  const call = { id: "1", name: "look", args: {} };
  const response = { id: "1", name: "look", response: { result: 1 } };
  const message = { parts: [{ text: "so" }, { functionCall: call }, { functionResponse: response }] };
  for (const each of [message, { content: message }]) {
    assert.deepEqual([functionCallsOf(each), functionResponsesOf(each)], [[call], [response]]);
  }
  assert.deepEqual([functionCallsOf({ author: "a" }), functionResponsesOf(undefined)], [[], []]);
});

test("an event is a final response if the agent has nothing more to do", () => {
  const event = (part, fields) => ({ content: { parts: [{ text: "so" }, part] }, ...fields });
  const call = { functionCall: { name: "look", args: {} } };
  const response = { functionResponse: { name: "look", response: {} } };
  const result = event({ codeExecutionResult: { output: "4" } });
  assert.deepEqual([result, event(call)].map(hasTrailingCodeExecutionResult), [true, false]);
  const open = [event(call), event(response), result, event({ text: "ye" }, { partial: true })];
  assert.deepEqual(open.map(isFinalResponse), [false, false, false, false]);
  const final = [
    event({ text: "yes" }), { actions: { stateDelta: {} } }, event(response, { actions: { skipSummarization: true } }),
    event(call, { longRunningToolIds: ["1"] }),
  ];
  assert.deepEqual(final.map(isFinalResponse), [true, true, true, true]);
});
