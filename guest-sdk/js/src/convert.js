// Between the contract's values and those of authors. What the contract has no field for travels in `extra`, so that nothing is lost.

/** A value as JSON text. */
export function json(value) {
  const text = JSON.stringify(value === undefined ? null : value);
  if (text === undefined) throw new TypeError(`a ${typeof value} is not JSON`);
  return text;
}

const none = (value) => (value === undefined ? null : value);
const some = (value) => (value === null ? undefined : value);
const read = (text) => (text === null || text === undefined ? undefined : JSON.parse(text));
const object = (value) => (value && Object.keys(value).length ? json(value) : null);

/** An object without its keys that are undefined. */
function present(value) {
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined));
}

/** The keys of a value that are not among those that are known. */
function others(value, known) {
  return object(Object.fromEntries(Object.entries(value).filter(([key, each]) => !known.includes(key) && each !== undefined)));
}

const FUNCTION_CALL = ["id", "name", "args"];
const FUNCTION_RESPONSE = ["id", "name", "response"];

/** One way to read and one to write what each kind of part holds: the key of the part, the case of the contract. */
const DATA = {
  text: ["text", (text) => text, (text) => text],
  inlineData: ["inline-data", bytesToWit, (blob) => present({ mimeType: blob.mimeType, data: blob.data, displayName: some(blob.displayName) })],
  fileData: [
    "file-data",
    (file) => ({ fileUri: file.fileUri, mimeType: none(file.mimeType), displayName: none(file.displayName) }),
    (file) => present({ fileUri: file.fileUri, mimeType: some(file.mimeType), displayName: some(file.displayName) }),
  ],
  functionCall: [
    "function-call",
    (call) => ({ id: none(call.id), name: call.name, args: json(call.args ?? {}), extra: others(call, FUNCTION_CALL) }),
    (call) => present({ id: some(call.id), name: call.name, args: JSON.parse(call.args), ...read(call.extra) }),
  ],
  functionResponse: [
    "function-response",
    (it) => ({ id: none(it.id), name: it.name, response: json(it.response ?? {}), extra: others(it, FUNCTION_RESPONSE) }),
    (it) => present({ id: some(it.id), name: it.name, response: JSON.parse(it.response), ...read(it.extra) }),
  ],
  executableCode: [
    "executable-code",
    (it) => ({ language: none(it.language), code: it.code, extra: others(it, ["language", "code"]) }),
    (it) => present({ language: some(it.language), code: it.code, ...read(it.extra) }),
  ],
  codeExecutionResult: [
    "code-execution-result",
    (it) => ({ outcome: none(it.outcome), output: none(it.output), extra: others(it, ["outcome", "output"]) }),
    (it) => present({ outcome: some(it.outcome), output: some(it.output), ...read(it.extra) }),
  ],
};

function bytesToWit(blob) {
  if (!(blob.data instanceof Uint8Array)) throw new TypeError("inlineData.data must be a Uint8Array");
  return { mimeType: blob.mimeType, data: blob.data, displayName: none(blob.displayName) };
}

export function partToWit(part) {
  const key = Object.keys(DATA).find((each) => part[each] !== undefined);
  const data = key ? { tag: DATA[key][0], val: DATA[key][1](part[key]) } : { tag: "other" };
  const known = ["thought", "thoughtSignature", key];
  return { data, thought: Boolean(part.thought), thoughtSignature: none(part.thoughtSignature), extra: others(part, known) };
}

export function partFromWit(part) {
  const kind = Object.entries(DATA).find(([, [tag]]) => tag === part.data.tag);
  const data = kind ? { [kind[0]]: kind[1][2](part.data.val) } : {};
  return present({ ...data, thought: part.thought || undefined, thoughtSignature: some(part.thoughtSignature), ...read(part.extra) });
}

export const contentToWit = (content) => ({ role: none(content.role), parts: content.parts.map(partToWit) });
export const contentFromWit = (content) => present({ role: some(content.role), parts: content.parts.map(partFromWit) });

const maybe = (value, convert) => (value === null || value === undefined ? null : convert(value));

const ACTIONS = ["stateDelta", "artifactDelta", "skipSummarization", "transferToAgent", "escalate", "endOfAgent"];
const EVENT = [
  "id", "invocationId", "author", "content", "actions", "partial", "branch", "longRunningToolIds", "errorCode", "errorMessage",
  "timestampMicros",
];

export function eventToWit(event) {
  const actions = event.actions ?? {};
  return {
    id: event.id ?? "",
    invocationId: event.invocationId ?? "",
    author: event.author ?? "",
    content: maybe(event.content, contentToWit),
    actions: {
      stateDelta: Object.entries(actions.stateDelta ?? {}).map(([key, value]) => [key, json(value)]),
      artifactDelta: Object.entries(actions.artifactDelta ?? {}),
      skipSummarization: none(actions.skipSummarization),
      transferToAgent: none(actions.transferToAgent),
      escalate: none(actions.escalate),
      endOfAgent: none(actions.endOfAgent),
      extra: others(actions, ACTIONS),
    },
    partial: Boolean(event.partial),
    branch: none(event.branch),
    longRunningToolIds: event.longRunningToolIds ?? [],
    errorCode: none(event.errorCode),
    errorMessage: none(event.errorMessage),
    timestamp: event.timestampMicros ?? 0,
    extra: others(event, EVENT),
  };
}

export function eventFromWit(event) {
  const { actions } = event;
  return present({
    id: event.id,
    invocationId: event.invocationId,
    author: event.author,
    content: some(maybe(event.content, contentFromWit)),
    actions: present({
      stateDelta: Object.fromEntries(actions.stateDelta.map(([key, value]) => [key, JSON.parse(value)])),
      artifactDelta: Object.fromEntries(actions.artifactDelta.map(([key, version]) => [key, Number(version)])),
      skipSummarization: some(actions.skipSummarization),
      transferToAgent: some(actions.transferToAgent),
      escalate: some(actions.escalate),
      endOfAgent: some(actions.endOfAgent),
      ...read(actions.extra),
    }),
    partial: event.partial,
    branch: some(event.branch),
    longRunningToolIds: event.longRunningToolIds,
    errorCode: some(event.errorCode),
    errorMessage: some(event.errorMessage),
    timestampMicros: Number(event.timestamp),
    ...read(event.extra),
  });
}

const declarationToWit = (tool) => ({
  name: tool.name,
  description: tool.description ?? "",
  parameters: tool.parameters ? json(tool.parameters) : null,
  response: tool.response ? json(tool.response) : null,
});

export function requestToWit(request) {
  return {
    model: request.model ?? "",
    contents: request.contents.map(contentToWit),
    systemInstructions: request.systemInstructions ?? [],
    tools: (request.tools ?? []).map(declarationToWit),
    modelTools: (request.modelTools ?? []).map(json),
    config: object(request.config),
  };
}

export function requestFromWit(request) {
  return {
    model: request.model,
    contents: request.contents.map(contentFromWit),
    systemInstructions: [...request.systemInstructions],
    tools: request.tools.map((tool) => present({ ...tool, parameters: read(tool.parameters), response: read(tool.response) })),
    modelTools: request.modelTools.map((tool) => JSON.parse(tool)),
    config: read(request.config) ?? {},
  };
}

const RESPONSE = ["content", "partial", "finishReason", "errorCode", "errorMessage"];

export function responseToWit(response) {
  return {
    content: maybe(response.content, contentToWit),
    partial: Boolean(response.partial),
    finishReason: none(response.finishReason),
    errorCode: none(response.errorCode),
    errorMessage: none(response.errorMessage),
    extra: others(response, RESPONSE),
  };
}

export function responseFromWit(response) {
  return present({
    content: some(maybe(response.content, contentFromWit)),
    partial: response.partial,
    finishReason: some(response.finishReason),
    errorCode: some(response.errorCode),
    errorMessage: some(response.errorMessage),
    ...read(response.extra),
  });
}

export const toolToWit = (tool) => ({
  declaration: declarationToWit(tool), longRunning: tool.longRunning, requiresConfirmation: tool.confirm,
});

const kebab = (name) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

export const callbackToWit = (callback) => ({ name: callback.name, points: [kebab(callback.at)] });

const names = (items = []) => items.map((item) => (typeof item === "string" ? item : item.name));

export function agentToWit(agent) {
  return {
    name: agent.name,
    description: agent.description,
    kind: kindToWit(agent),
    subAgents: names(agent.subAgents),
    beforeAgent: names(agent.beforeAgent),
    afterAgent: names(agent.afterAgent),
    onAgentError: names(agent.onAgentError),
  };
}

function kindToWit(agent) {
  switch (agent.kind) {
    case "llm": return { tag: "llm", val: llmToWit(agent) };
    case "loop": return { tag: "loop", val: none(agent.maxIterations) };
    case "custom": return { tag: "custom", val: { model: none(agent.model), tools: names(agent.tools) } };
    default: return { tag: agent.kind };
  }
}

function instructionToWit(instruction) {
  if (instruction === undefined) return { tag: "none" };
  return typeof instruction === "function" ? { tag: "computed" } : { tag: "text", val: instruction };
}

function llmToWit(agent) {
  const set = (each) => (typeof each === "string" ? { name: each } : each);
  return {
    model: none(agent.model),
    instruction: instructionToWit(agent.instruction),
    globalInstruction: instructionToWit(agent.globalInstruction),
    tools: names(agent.tools),
    toolsets: (agent.toolsets ?? []).map(set).map(({ name, only = [], prefix }) => ({ name, only, prefix: none(prefix) })),
    examples: { tag: "none" },
    planner: { tag: "none" },
    codeExecution: { tag: "none" },
    withoutHistory: Boolean(agent.withoutHistory),
    inputSchema: agent.inputSchema ? json(agent.inputSchema) : null,
    outputSchema: agent.outputSchema ? json(agent.outputSchema) : null,
    outputKey: none(agent.outputKey),
    maxSteps: none(agent.maxSteps),
    disallowTransferToParent: Boolean(agent.disallowTransferToParent),
    disallowTransferToPeers: Boolean(agent.disallowTransferToPeers),
    config: object(agent.config),
    beforeModel: names(agent.beforeModel),
    afterModel: names(agent.afterModel),
    beforeTool: names(agent.beforeTool),
    afterTool: names(agent.afterTool),
    onModelError: names(agent.onModelError),
    onToolError: names(agent.onToolError),
  };
}
