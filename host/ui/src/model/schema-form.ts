// A form for the arguments of a tool, from their JSON Schema.

import type { Json, JsonObject } from "../api/types";

export interface Field {
  name: string;
  /** `json` is for values without a more specific field. */
  kind: "text" | "number" | "boolean" | "choice" | "json";
  description: string;
  isRequired: boolean;
  choices: string[];
  /** The initial text of the field. */
  initial: string;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function kindOf(schema: JsonObject): Field["kind"] {
  const types = Array.isArray(schema.type) ? schema.type.filter((type) => type !== "null") : [schema.type];
  if (Array.isArray(schema.enum) && schema.enum.every((choice) => typeof choice === "string")) return "choice";
  const type = types.length === 1 && typeof types[0] === "string" ? types[0].toLowerCase() : "";
  switch (type) {
    case "string":
      return "text";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    default:
      return "json";
  }
}

/** Returns the fields of a schema, or `undefined` if it is no object with known keys. */
export function formFields(schema: Json | undefined): Field[] | undefined {
  if (!isObject(schema)) return schema === undefined || schema === null ? [] : undefined;
  if (!isObject(schema.properties)) return Object.keys(schema).length === 0 || schema.type === "object" ? [] : undefined;
  const required = Array.isArray(schema.required) ? schema.required : [];
  return Object.entries(schema.properties).map(([name, property]) => {
    const of = isObject(property) ? property : {};
    const kind = kindOf(of);
    const initial = of.default === undefined || of.default === null ? "" : kind === "json" ? JSON.stringify(of.default) : String(of.default);
    return {
      name,
      kind,
      description: typeof of.description === "string" ? of.description : "",
      isRequired: required.includes(name),
      choices: kind === "choice" ? (of.enum as string[]) : [],
      initial,
    };
  });
}

/**
 * Returns the arguments of a filled form. Empty fields are left out.
 *
 * @throws if a number or a JSON value cannot be read.
 */
export function readForm(fields: readonly Field[], values: { [name: string]: string }): JsonObject {
  const args: JsonObject = {};
  for (const { name, kind, isRequired } of fields) {
    const value = values[name] ?? "";
    if (value === "" && !(isRequired && kind === "text")) continue;
    switch (kind) {
      case "number": {
        const number = Number(value);
        if (value.trim() === "" || !Number.isFinite(number)) throw new Error(`${name} is not a number.`);
        args[name] = number;
        break;
      }
      case "boolean":
        args[name] = value === "true";
        break;
      case "json":
        try {
          args[name] = JSON.parse(value) as Json;
        } catch {
          throw new Error(`${name} is not JSON.`);
        }
        break;
      case "text":
      case "choice":
        args[name] = value;
    }
  }
  return args;
}
