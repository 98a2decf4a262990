// Schemas in definitions.

import assert from "node:assert/strict";
import { test } from "node:test";

import { component, llmAgent, s, tool } from "hatchery-guest";

const run = () => 1;

test("a value that is no schema is an error that says what to write", () => {
  const zod = { type: "object", safeParse: () => ({}) };
  for (const [define, message] of [
    [() => tool({ name: "roll", parameters: { sides: s.integer() }, run }), "tool `roll`: `parameters` is a JSON Schema, such as s.object({…})"],
    [() => tool({ name: "roll", parameters: "sides", run }), "tool `roll`: `parameters` is a JSON Schema, such as s.object({…})"],
    [() => tool({ name: "roll", parameters: s.integer(), run }), "tool `roll`: `parameters` is the schema of an object: s.object({…})"],
    [() => tool({ name: "roll", parameters: zod, run }),
      "tool `roll`: `parameters` is a JSON Schema; for a schema of Zod, write z.toJSONSchema(schema)"],
    [() => tool({ name: "roll", response: [], run }), "tool `roll`: `response` is a JSON Schema, such as s.object({…})"],
    [() => s.object({ sides: "integer" }), "the property `sides` is a JSON Schema, such as s.object({…})"],
    [() => component({ agents: [llmAgent({ name: "x", outputSchema: { a: s.string() } })] }),
      "agent `x`: `outputSchema` is a JSON Schema, such as s.object({…})"],
    [() => component({ agents: [llmAgent({ name: "x", inputSchema: "text" })] }), "agent `x`: `inputSchema` is a JSON Schema, such as s.object({…})"],
    [() => component({ agents: [llmAgent({ name: "x", instruction: 5 })] }), "agent `x`: `instruction` is a string or a function"],
  ]) {
    assert.throws(define, { name: "TypeError", message });
  }
});

test("schemas may be written by hand", () => {
  const parameters = { properties: { sides: { type: "integer", default: 6 } }, $defs: { a: s.string() } };
  assert.equal(tool({ name: "roll", parameters, run: ({ sides }) => sides }).call({}), 6);
  const { agents } = component({ agents: [llmAgent({ name: "x", outputSchema: { type: "array", items: s.string() }, inputSchema: s.object({}) })] });
  assert.deepEqual(agents.x.outputSchema.items.type, "string");
});
