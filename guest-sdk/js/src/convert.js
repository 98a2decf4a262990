// Lossless conversion between the values of the contract and the values of authors. Keys without a field in the contract are kept in `extra`.

import { bytesOf, content as createContent } from "./content.js";
import { parse, stringify } from "./json.js";

const orNull = (value) => (value === undefined ? null : value);
const orUndefined = (value) => (value === null ? undefined : value);

/** Parses optional JSON text. */
export const parseOptional = (text) => (text === null || text === undefined ? undefined : parse(text));

/** Serializes an object; `null` if it has no keys. */
const stringifyObject = (value) => (value && Object.keys(value).length ? stringify(value) : null);

/** Converts a value unless it is absent. */
const convertOptional = (value, convert) => (value === null || value === undefined ? null : convert(value));

/** Removes the keys whose value is `undefined`. */
function withoutUndefined(value) {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined));
}

/** Serializes the keys of a value that have no field. */
function extraOf(value, fields = []) {
  const extra = Object.entries(value).filter(([key, field]) => !fields.includes(key) && field !== undefined);
  return stringifyObject(Object.fromEntries(extra));
}

/** The kinds of data of a part, by their key: the case in the contract, the conversion to it, the conversion from it. */
const PART_DATA = {
  text: ["text", (text) => text, (text) => text],
  inlineData: [
    "inline-data",
    blobToWit,
    blobFromWit,
  ],
  fileData: [
    "file-data",
    (file) => ({ fileUri: file.fileUri, mimeType: orNull(file.mimeType), displayName: orNull(file.displayName) }),
    ({ fileUri, mimeType, displayName }) => withoutUndefined({
      fileUri, mimeType: orUndefined(mimeType), displayName: orUndefined(displayName),
    }),
  ],
  functionCall: [
    "function-call",
    functionCallToWit,
    ({ id, name, args, extra }) => withoutUndefined({ id: orUndefined(id), name, args: parse(args), ...parseOptional(extra) }),
  ],
  functionResponse: [
    "function-response",
    functionResponseToWit,
    functionResponseFromWit,
  ],
  executableCode: [
    "executable-code",
    ({ language, code, ...extra }) => ({ language: orNull(language), code, extra: extraOf(extra) }),
    ({ language, code, extra }) => withoutUndefined({ language: orUndefined(language), code, ...parseOptional(extra) }),
  ],
  codeExecutionResult: [
    "code-execution-result",
    ({ outcome, output, ...extra }) => ({ outcome: orNull(outcome), output: orNull(output), extra: extraOf(extra) }),
    ({ outcome, output, extra }) => withoutUndefined({
      outcome: orUndefined(outcome), output: orUndefined(output), ...parseOptional(extra),
    }),
  ],
};

export function blobToWit(blob) {
  if (!(blob.data instanceof Uint8Array)) throw new TypeError("inlineData.data must be a Uint8Array");
  return { mimeType: blob.mimeType, data: blob.data, displayName: orNull(blob.displayName) };
}

export function blobFromWit(blob) {
  return withoutUndefined({ mimeType: blob.mimeType, data: blob.data, displayName: orUndefined(blob.displayName) });
}

export function functionCallToWit({ id, name, args, ...extra }) {
  return { id: orNull(id), name, args: stringify(args ?? {}), extra: extraOf(extra) };
}

export function functionResponseToWit({ id, name, response, ...extra }) {
  return { id: orNull(id), name, response: stringify(response ?? {}), extra: extraOf(extra) };
}

export function functionResponseFromWit({ id, name, response, extra }) {
  return withoutUndefined({ id: orUndefined(id), name, response: parse(response), ...parseOptional(extra) });
}

export function partToWit(part) {
  if (typeof part !== "object" || part === null) throw new TypeError(`a part is an object such as \`{ text }\`, not a ${typeof part}`);
  const key = Object.keys(PART_DATA).find((name) => part[name] !== undefined);
  const data = key ? { tag: PART_DATA[key][0], val: PART_DATA[key][1](part[key]) } : { tag: "other" };
  const extra = extraOf(part, ["thought", "thoughtSignature", key]);
  return { data, thought: Boolean(part.thought), thoughtSignature: orNull(part.thoughtSignature), extra };
}

export function partFromWit(part) {
  const kind = Object.entries(PART_DATA).find(([, [tag]]) => tag === part.data.tag);
  const data = kind ? { [kind[0]]: kind[1][2](part.data.val) } : {};
  const thoughtSignature = orUndefined(part.thoughtSignature);
  return withoutUndefined({ ...data, thought: part.thought || undefined, thoughtSignature, ...parseOptional(part.extra) });
}

export function contentToWit(content) {
  if (!Array.isArray(content?.parts)) {
    throw new TypeError("a content is an object with a list `parts`, not a text or a part; content(text) creates one");
  }
  return { role: orNull(content.role), parts: content.parts.map(partToWit) };
}

export const contentFromWit = (content) => withoutUndefined({ role: orUndefined(content.role), parts: content.parts.map(partFromWit) });

const ACTIONS = ["stateDelta", "artifactDelta", "deletedArtifactIds", "skipSummarization", "transferToAgent", "escalate", "endOfAgent", "endInvocation"];
const EVENT = [
  "id", "invocationId", "author", "content", "actions", "partial", "turnComplete", "interrupted", "branch", "longRunningToolIds",
  "errorCode", "errorMessage", "timestampMicros",
];

export function eventToWit(event) {
  const actions = event.actions ?? {};
  return {
    id: event.id ?? "",
    invocationId: event.invocationId ?? "",
    author: event.author ?? "",
    content: convertOptional(event.content, contentToWit),
    actions: {
      stateDelta: Object.entries(actions.stateDelta ?? {}).map(([key, value]) => [key, stringify(value)]),
      artifactDelta: Object.entries(actions.artifactDelta ?? {}),
      deletedArtifactIds: actions.deletedArtifactIds ?? [],
      skipSummarization: orNull(actions.skipSummarization),
      transferToAgent: orNull(actions.transferToAgent),
      escalate: orNull(actions.escalate),
      endOfAgent: orNull(actions.endOfAgent),
      endInvocation: orNull(actions.endInvocation),
      extra: extraOf(actions, ACTIONS),
    },
    partial: Boolean(event.partial),
    turnComplete: orNull(event.turnComplete),
    interrupted: orNull(event.interrupted),
    branch: orNull(event.branch),
    longRunningToolIds: event.longRunningToolIds ?? [],
    errorCode: orNull(event.errorCode),
    errorMessage: orNull(event.errorMessage),
    timestamp: event.timestampMicros ?? 0,
    extra: extraOf(event, EVENT),
  };
}

export function eventFromWit(event) {
  const { actions } = event;
  return withoutUndefined({
    id: event.id,
    invocationId: event.invocationId,
    author: event.author,
    content: orUndefined(convertOptional(event.content, contentFromWit)),
    actions: withoutUndefined({
      stateDelta: Object.fromEntries(actions.stateDelta.map(([key, value]) => [key, parse(value)])),
      artifactDelta: Object.fromEntries(actions.artifactDelta.map(([key, version]) => [key, Number(version)])),
      deletedArtifactIds: actions.deletedArtifactIds.length ? [...actions.deletedArtifactIds] : undefined,
      skipSummarization: orUndefined(actions.skipSummarization),
      transferToAgent: orUndefined(actions.transferToAgent),
      escalate: orUndefined(actions.escalate),
      endOfAgent: orUndefined(actions.endOfAgent),
      endInvocation: orUndefined(actions.endInvocation),
      ...parseOptional(actions.extra),
    }),
    partial: event.partial,
    turnComplete: orUndefined(event.turnComplete),
    interrupted: orUndefined(event.interrupted),
    branch: orUndefined(event.branch),
    longRunningToolIds: [...event.longRunningToolIds],
    errorCode: orUndefined(event.errorCode),
    errorMessage: orUndefined(event.errorMessage),
    timestampMicros: Number(event.timestamp),
    ...parseOptional(event.extra),
  });
}

export const declarationToWit = (tool) => ({
  name: tool.name,
  description: tool.description ?? "",
  parameters: tool.parameters ? stringify(tool.parameters) : null,
  response: tool.response ? stringify(tool.response) : null,
});

export function requestToWit(request) {
  return {
    model: request.model ?? "",
    contents: request.contents.map(contentToWit),
    systemInstructions: request.systemInstructions ?? [],
    tools: (request.tools ?? []).map(declarationToWit),
    modelTools: (request.modelTools ?? []).map(stringify),
    config: stringifyObject(request.config),
  };
}

export function requestFromWit(request) {
  return {
    model: request.model,
    contents: request.contents.map(contentFromWit),
    systemInstructions: [...request.systemInstructions],
    tools: request.tools.map(({ name, description, parameters, response }) => withoutUndefined({
      name, description, parameters: parseOptional(parameters), response: parseOptional(response),
    })),
    modelTools: request.modelTools.map((tool) => parse(tool)),
    config: parseOptional(request.config) ?? {},
  };
}

const RESPONSE = ["content", "partial", "turnComplete", "interrupted", "finishReason", "errorCode", "errorMessage"];

export function responseToWit(response) {
  return {
    content: convertOptional(response.content, contentToWit),
    partial: Boolean(response.partial),
    turnComplete: orNull(response.turnComplete),
    interrupted: orNull(response.interrupted),
    finishReason: orNull(response.finishReason),
    errorCode: orNull(response.errorCode),
    errorMessage: orNull(response.errorMessage),
    extra: extraOf(response, RESPONSE),
  };
}

export function responseFromWit(response) {
  return withoutUndefined({
    content: orUndefined(convertOptional(response.content, contentFromWit)),
    partial: response.partial,
    turnComplete: orUndefined(response.turnComplete),
    interrupted: orUndefined(response.interrupted),
    finishReason: orUndefined(response.finishReason),
    errorCode: orUndefined(response.errorCode),
    errorMessage: orUndefined(response.errorMessage),
    ...parseOptional(response.extra),
  });
}

const toState = (state) => Object.entries(state).map(([key, value]) => [key, stringify(value)]);
export const artifactVersionFromWit = ({ version, mimeType, size, created, customMetadata }) => withoutUndefined({
  version: Number(version), mimeType: orUndefined(mimeType), size: Number(size),
  createdMicros: created === null || created === undefined ? undefined : Number(created), customMetadata: parse(customMetadata),
});

export const stateFromWit = (state) => Object.fromEntries(state.map(([key, value]) => [key, parse(value)]));

const toNumber = (value) => (value === null || value === undefined ? undefined : Number(value));

export function infoFromWit(info) {
  const { modelCalls, tokens, events, bytes } = info.remaining;
  return withoutUndefined({
    app: info.app,
    user: info.user,
    session: info.session,
    invocationId: info.invocationId,
    agent: info.agent,
    branch: orUndefined(info.branch),
    functionCallId: orUndefined(info.functionCallId),
    streamingMode: info.streamingMode,
    isResumable: info.isResumable,
    depth: info.depth,
    remaining: withoutUndefined({
      modelCalls: toNumber(modelCalls), tokens: toNumber(tokens), events: toNumber(events), bytes: toNumber(bytes),
    }),
  });
}

export const runRequestToWit = ({ app, message, session, stateDelta, streaming }) => ({
  app, session: orNull(session), message: contentToWit(message), stateDelta: toState(stateDelta), streaming,
});

export const sessionFromWit = (info) => ({
  app: info.app,
  id: info.id,
  state: stateFromWit(info.state),
  eventCount: Number(info.eventCount),
  createdMicros: Number(info.created),
  updatedMicros: Number(info.updated),
});

export const stateToWit = toState;

export const windowToWit = ({ recent, afterMicros }) => ({ recent: orNull(recent), after: orNull(afterMicros) });

const camel = (name) => name.replace(/-([a-z])/g, (_, letter) => letter.toUpperCase());

export const pluginFromWit = ({ name, hooks, component }) =>
  withoutUndefined({ name, hooks: hooks.map(camel), component: orUndefined(component) });

const toContent = (message, role) => (typeof message === "string" ? createContent(message, role) : message);

/** Converts an example: strings become contents. */
export const exampleToWit = ({ input, output }) => ({
  input: contentToWit(toContent(input, "user")), output: [output].flat().map((message) => contentToWit(toContent(message, "model"))),
});

export const codeInputFromWit = ({ code, inputFiles, executionId }) => withoutUndefined({
  code, inputFiles: inputFiles.map(({ name, mimeType, content }) => ({ name, mimeType, content })), executionId: orUndefined(executionId),
});

/** Converts the result of code. A text is the standard output. */
export function codeOutputToWit(output) {
  const { stdout = "", stderr = "", outputFiles = [] } = typeof output === "string" ? { stdout: output } : output ?? {};
  const toFile = ({ name, mimeType = "text/plain", content }) => ({
    name, mimeType, content: typeof content === "string" ? bytesOf(content) : content,
  });
  return { stdout, stderr, outputFiles: outputFiles.map(toFile) };
}
