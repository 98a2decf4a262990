// The exports of the contract for the items of a component.

import { joinResponses, outputsOf, toEvent, toResponse } from "./content.js";
import { Context } from "./context.js";
import * as convert from "./convert.js";
import { BadArguments, COMPONENT_FAILED, FatalError, HatcheryError, describe } from "./errors.js";
import { createCallbackExports, createPluginExports } from "./hooks.js";
import { parse, stringify } from "./json.js";
import * as live from "./live.js";
import * as specs from "./specs.js";

/** Creates the exports. `begin` is called before each call of an item. */
export function createExports(component, host, begin) {
  const calls = new Calls(host, begin);
  return {
    guestAgents: createAgentExports(component.agents, calls),
    guestTools: createToolExports(component.tools, calls),
    guestToolsets: createToolsetExports(component.toolsets, calls),
    guestCallbacks: createCallbackExports(component.callbacks, calls),
    guestPlugins: createPluginExports(component.plugins, calls),
    guestCodeExecutors: createCodeExecutorExports(component.codeExecutors, calls),
    guestSummarizers: createSummarizerExports(component.summarizers, calls),
    guestExamples: createExampleExports(component.examples, calls),
    guestModels: createModelExports(component.models, calls),
    guestLiveModels: createLiveModelExports(component.liveModels, calls),
  };
}

/** Calls of items: finds the item, and converts errors. */
class Calls {
  #host;
  #begin;

  constructor(host, begin) {
    this.#host = host;
    this.#begin = begin;
  }

  /** Calls code with an item and a context. */
  async call(items, kind, name, code) {
    return this.#run(items, kind, name, code, toWitError);
  }

  /** As `call`, in a function with tool errors. */
  async callTool(items, kind, name, code) {
    return this.#run(items, kind, name, code, toWitToolError);
  }

  async #run(items, kind, name, code, toFailure) {
    this.#begin();
    try {
      if (!Object.hasOwn(items, name)) throw new FatalError(`this component has no ${kind} \`${name}\``, "NOT_FOUND");
      return await code(items[name], new Context(this.#host));
    } catch (error) {
      throw toFailure(error);
    }
  }
}

/** Converts an error. One without a code is also logged, with its stack. */
function toWitError(error) {
  if (error instanceof HatcheryError) return { code: error.code, message: error.message };
  if (!(error instanceof BadArguments)) console.error(error);
  return { code: COMPONENT_FAILED, message: describe(error) };
}

function toWitToolError(error) {
  return error instanceof FatalError ? { tag: "fatal", val: toWitError(error) } : { tag: "recoverable", val: toWitError(error).message };
}

function createToolExports(items, calls) {
  return {
    describe: () => Object.values(items).map(specs.toolToWit),
    call: (name, args) => calls.callTool(items, "tool", name, async (tool, ctx) => stringify(await tool.call(parse(args), ctx))),
  };
}

function createToolsetExports(items, calls) {
  return {
    describe: () => Object.keys(items),
    tools: (name) => calls.call(items, "toolset", name, async (toolset, ctx) => (await toolset.tools(ctx)).map(specs.toolToWit)),
    call: (name, tool, args) =>
      calls.callTool(items, "toolset", name, async (toolset, ctx) => stringify(await toolset.call(tool, parse(args), ctx))),
  };
}

function createAgentExports(items, calls) {
  return {
    describe: () => Object.values(items).map(specs.agentToWit),
    computeInstruction: (name, isGlobal) =>
      calls.call(items, "agent", name, async (agent, ctx) => {
        const text = await (isGlobal ? agent.globalInstruction : agent.instruction)(ctx);
        if (typeof text === "string") return text;
        throw new TypeError(`the function of an instruction returns a string, not ${text === null ? "null" : typeof text}`);
      }),
    run: (name) => calls.call(items, "custom agent", name, (agent, ctx) => emitAll(agent, ctx)),
  };
}

/** Streams the events of an agent. A failure is its last event. */
async function* emitAll(agent, ctx) {
  try {
    for await (const output of outputsOf(agent.run(ctx))) yield convert.eventToWit(toEvent(output));
  } catch (error) {
    const { code, message } = toWitError(error);
    yield convert.eventToWit({ errorCode: code, errorMessage: message });
  }
}

function createModelExports(items, calls) {
  return {
    describe: () => Object.keys(items),
    generate: (name, request, streaming) =>
      calls.call(items, "model", name, async (model, ctx) => {
        const pieces = outputsOf(model.run(convert.requestFromWit(request), ctx));
        if (streaming) return answerAll(await pieces.next(), pieces);
        const all = [];
        for await (const piece of pieces) all.push(toResponse(piece));
        return only(convert.responseToWit(joinResponses(all)));
      }),
  };
}

async function* only(item) {
  yield item;
}

/** Streams the pieces of an answer, of which the first has been read. A failure is the last one. */
async function* answerAll(first, pieces) {
  try {
    for (let next = first; !next.done; next = await pieces.next()) {
      const response = toResponse(next.value);
      yield convert.responseToWit({ ...response, partial: response.errorCode === undefined });
    }
  } catch (error) {
    const { code, message } = toWitError(error);
    yield convert.responseToWit({ errorCode: code, errorMessage: message });
  } finally {
    await pieces.return();
  }
}

function createLiveModelExports(items, calls) {
  return {
    describe: () => Object.keys(items),
    connect: (name, request, config, requests) =>
      calls.call(items, "live model", name, (model, ctx) => {
        const connection = { config: parse(config), [Symbol.asyncIterator]: () => heard(requests) };
        return converse(model.run(convert.requestFromWit(request), connection, ctx));
      }),
  };
}

/** Reads the requests to a live model. */
async function* heard(requests) {
  for await (const request of requests) yield live.requestFromWit(request);
}

/** Streams the responses of a live model. A failure is the last response. */
async function* converse(responses) {
  try {
    for await (const response of responses) yield live.responseToWit(response);
  } catch (error) {
    yield { tag: "failed", val: toWitError(error) };
  }
}

function createCodeExecutorExports(items, calls) {
  return {
    describe: () => Object.keys(items),
    execute: (name, input) =>
      calls.callTool(items, "code executor", name, async (executor, ctx) =>
        convert.codeOutputToWit(await executor.run(convert.codeInputFromWit(input), ctx))),
  };
}

function createSummarizerExports(items, calls) {
  return {
    describe: () => Object.keys(items),
    summarize: (name, events) =>
      calls.call(items, "summarizer", name, async (summarizer, ctx) => {
        const summary = await summarizer.run(events.map(convert.eventFromWit), ctx);
        return summary === undefined || summary === null ? null : convert.contentToWit(toEvent(summary).content);
      }),
  };
}

function createExampleExports(items, calls) {
  return {
    describe: () => Object.keys(items),
    examples: (name, query) =>
      calls.call(items, "example provider", name, async (provider, ctx) => (await provider.run(query, ctx)).map(convert.exampleToWit)),
  };
}
